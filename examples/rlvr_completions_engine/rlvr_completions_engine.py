"""An engine for a server with OpenAI's ``/completions`` that takes and gives token ids, as vLLM.

The server must give the log-probs of the distribution it samples from (vLLM:
``--logprobs-mode processed_logprobs``). A run needs a way to give it new weights too; without one
it ends at its first sync, and an evaluation is all that can be done.
"""

import json
import tempfile
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import Any
from urllib.request import Request, urlopen

from safetensors.torch import save_file

from rlvr_core import api


@api.hookimpl
def register_engines(registrar: api.Registrar) -> None:
    """Name the engine ``completions/server``."""
    registrar.add("server", "rlvr_completions_engine:Completions", summary="A completions server.")


class Completions:
    """Asks a server, one request a completion."""

    traits = api.EngineTraits(separate=True, elsewhere=True)

    class Config(api.ComponentConfig):
        """Options of ``completions/server``."""

        base_url: str
        """Where ``/completions`` is, such as ``http://host:8000/v1``."""
        model: str
        """Its name on the server."""
        reload_url: str | None = None
        """Is told ``{"path": FILE, "version": N}`` at a sync, and loads that safetensors file."""

    def __init__(self, config: Config) -> None:
        self.config, self.version, self.pool = config, 0, ThreadPoolExecutor(32)
        self.sent: list[Future[tuple[api.Generation, ...]]] = []

    def start(self, context: api.EngineContext) -> None:
        """Take the tokenizer; the server has the model already."""
        self.tokenizer = context.tokenizer

    def submit(self, request: api.GenerationRequest) -> Future[tuple[api.Generation, ...]]:
        """Ask, in a thread."""
        future = self.pool.submit(lambda: tuple(self.one(request, s) for s in request.seeds))
        self.sent.append(future)
        return future

    def drain(self, timeout: float | None = None) -> None:
        """Wait for every answer."""
        if wait(self.sent, timeout).not_done:
            raise api.RunError(f"no answer in {timeout} s", where=self.config.base_url)
        self.sent.clear()

    def load_weights(self, version: int, source: api.WeightSource) -> None:
        """Have the server load new weights."""
        if self.config.reload_url is not None:
            with tempfile.TemporaryDirectory() as folder:
                file = f"{folder}/model.safetensors"
                save_file({name: one.contiguous() for name, one in source.tensors()}, file)
                self.post(self.config.reload_url, {"path": file, "version": version})
        elif version > 0:
            raise api.RunError("the server keeps its weights", remedy="set engine.with.reload_url")
        self.version = version

    def one(self, request: api.GenerationRequest, seed: int) -> api.Generation:
        """One completion."""
        p = request.params
        body = {"model": self.config.model, "prompt": list(request.prompt_ids), "seed": seed,
                "max_tokens": p.max_tokens, "temperature": p.temperature, "top_p": p.top_p,
                "stop": p.stop, "logprobs": 0, "return_tokens_as_token_ids": True}  # fmt: skip
        choice = self.post(f"{self.config.base_url}/completions", body)["choices"][0]
        found, reason = choice["logprobs"], choice["finish_reason"]
        ids = tuple(int(token.removeprefix("token_id:")) for token in found["tokens"])
        text = str(self.tokenizer.decode(list(ids), skip_special_tokens=True))
        return api.Generation(ids, tuple(found["token_logprobs"]), text, reason, self.version)

    def post(self, url: str, body: dict[str, Any]) -> Any:
        """What the server says."""
        data, kind = json.dumps(body).encode(), {"Content-Type": "application/json"}
        try:
            with urlopen(Request(url, data, kind), timeout=600) as reply:
                return json.load(reply)
        except OSError as error:
            raise api.RunError(f"the server failed: {error}", where=url) from error

    def sleep(self) -> None:
        """Nothing here to give back."""

    def wake(self) -> None:
        """Nothing was given back."""

    def close(self) -> None:
        """Ask no more."""
        self.pool.shutdown(cancel_futures=True)
