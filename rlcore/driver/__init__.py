"""The centralised driver: builds a job from its manifest, runs its optimizer, saves and resumes it."""
