"""AgentDojo's banking tasks, run as Milepost runs whose worker is killed once in each; the suite's own check judges."""
