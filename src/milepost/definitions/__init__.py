"""What a user declares: tools, workflows, prompts, and the types and values that they speak in."""
