"""The same accident under every agent framework, without Milepost and with it; and what its adapters cost a call."""
