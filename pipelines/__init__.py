"""Jobs, schedules, sensors and definitions over the assets. Nothing imports this package."""
