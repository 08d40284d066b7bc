"""What a person does to runs, and what a person sees of them. None of it needs a worker's cooperation."""
