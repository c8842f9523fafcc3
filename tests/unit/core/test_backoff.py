from smq_core.backoff import Backoff


def test_the_delay_doubles_up_to_its_limit_and_starts_over_after_a_success() -> None:
    backoff = Backoff(0.25, 1.5)

    assert backoff.seconds == 0.0
    assert [backoff.increase() for _ in range(5)] == [0.25, 0.5, 1.0, 1.5, 1.5]
    backoff.reset()
    assert backoff.seconds == 0.0
    assert backoff.increase() == 0.25
