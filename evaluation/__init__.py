"""AgentDojo's tasks, run as Milepost runs whose workers are killed; the suites' own checks judge."""
