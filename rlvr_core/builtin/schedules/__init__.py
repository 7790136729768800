"""Learning-rate schedules that go down."""
