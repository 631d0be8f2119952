"""The asyncio engine: concurrent tasks, cancellation, and a thread that ends."""

from __future__ import annotations

import asyncio
import threading

import pytest

from rlt_hw import AsyncEngine, ConfigError, SamplingParams
from tests.runtime.test_engine import ANSWER, PROBLEMS, PROMPT

OPTIONS = {"device": "cpu", "max_num_seqs": 8, "max_model_len": 128}


def run(scenario) -> None:
    async def main() -> None:
        async with AsyncEngine("demo:ouro", **OPTIONS) as engine:
            await scenario(engine)
            stats = await engine.stats()
            assert stats.pages_free == stats.pages_total
            assert stats.running == stats.waiting == 0

    asyncio.run(main())
    assert "rlt-hw engine" not in {thread.name for thread in threading.enumerate()}


def test_concurrent_requests_each_get_their_own():
    async def scenario(engine):
        outputs = await asyncio.gather(*(engine.generate(p["prompt"]) for p in PROBLEMS[:6]))
        assert [output.text for output in outputs] == [p["solution"] for p in PROBLEMS[:6]]

    run(scenario)


def test_leaving_a_stream_aborts_it():
    async def scenario(engine):
        async for output in engine.stream(PROMPT, SamplingParams(max_tokens=60, ignore_eos=True)):
            assert output.token_ids
            break
        await asyncio.sleep(0)
        assert (await engine.generate(PROMPT)).text == ANSWER

    run(scenario)


def test_cancelled_tasks_free_their_pages():
    async def scenario(engine):
        task = asyncio.create_task(engine.generate(PROMPT, SamplingParams(max_tokens=90, ignore_eos=True)))
        await asyncio.sleep(0)
        stats = await engine.stats()
        assert stats.running + stats.waiting == 1
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    run(scenario)


def test_abort_ends_a_stream_with_its_last_output():
    async def scenario(engine):
        outputs = []
        async for output in engine.stream(
            PROMPT, SamplingParams(max_tokens=90, ignore_eos=True), request_id="a"
        ):
            outputs.append(output)
            if len(outputs) == 1:
                assert await engine.abort("a")
        assert outputs[-1].finish_reason == "abort"
        assert not await engine.abort("a")

    run(scenario)


def test_bad_requests_raise_where_they_were_made():
    async def scenario(engine):
        good = asyncio.create_task(engine.generate(PROMPT))
        with pytest.raises(ConfigError, match="no tokens"):
            await engine.generate([])
        assert (await good).text == ANSWER

    run(scenario)


def test_a_closed_engine_refuses_and_ends_what_runs():
    async def main() -> None:
        engine = AsyncEngine("demo:ouro", **OPTIONS)
        params = SamplingParams(max_tokens=90, ignore_eos=True)
        running = asyncio.create_task(engine.generate(PROMPT, params))
        await asyncio.sleep(0)
        assert (await engine.stats()).prompt_tokens > 0
        await engine.close()
        await engine.close()
        assert (await running).finish_reason == "abort"
        with pytest.raises(ConfigError, match="closed"):
            await engine.generate(PROMPT)

    asyncio.run(main())
