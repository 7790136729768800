"""A server of OpenEnv, by its own package: echoes, and rewards the letter e."""

import sys

import uvicorn
from openenv.core.env_server import Action, Environment, Observation, State, create_fastapi_app


class EchoAction(Action):
    message: str
    volume: int = 1


class EchoObservation(Observation):
    echoed: str


class Echo(Environment):
    SUPPORTS_CONCURRENT_SESSIONS = True

    def __init__(self):
        super().__init__()
        self.seed, self.steps = None, 0

    def reset(self, seed=None, episode_id=None, **kwargs):
        self.seed, self.steps = seed, 0
        return EchoObservation(echoed=kwargs.get("word", ""), reward=0.0)

    def step(self, action, timeout_s=None, **kwargs):
        self.steps += 1
        if action.message == "fail":
            raise ValueError("cannot echo")
        text = f"{action.message * action.volume} {self.seed} {self.steps}"
        reward = float(action.message.count("e"))
        return EchoObservation(echoed=text, reward=reward, done=action.message == "end")

    @property
    def state(self):
        return State(step_count=self.steps)


if __name__ == "__main__":
    app = create_fastapi_app(Echo, EchoAction, EchoObservation, max_concurrent_envs=8)
    uvicorn.run(app, port=int(sys.argv[1]), log_level="error")
