"""The pure floor: values in, values out. No I/O, no clock, no chance, no asyncio, no logging."""
