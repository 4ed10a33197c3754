"""The embedded engine: what it draws is what the model says, alone or in company."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch

from dagrl.backends.base import Generator
from dagrl.backends.hf_generator import HFGenerator
from dagrl.backends.hf_trainer import HFPolicy
from dagrl.backends.memory import Budget
from dagrl.backends.network import Network
from dagrl.errors import DagrlError
from dagrl.experience import Sequences, cumulative
from dagrl.types import Completion, FinishReason, GenerationRequest, SamplingParams

BUDGET = Budget(micro_batch_tokens=1000, logprob_chunk_tokens=1000)


def _policy(model: Any, tokenizer: Any) -> HFPolicy:
    return HFPolicy(Network(model, name="tiny"), tokenizer=tokenizer, budget=BUDGET, optimizer=None)


def _engine(policy: HFPolicy, *, max_rows: int = 64, cache_tokens: int = 0) -> HFGenerator:
    return HFGenerator({0: policy}, {0: "agent"}, max_rows=max_rows, cache_tokens=cache_tokens)


def _ask(engine: Generator, requests: Sequence[GenerationRequest]) -> list[Completion]:
    async def ask() -> list[Completion]:
        return list(await asyncio.gather(*(engine.generate(request) for request in requests)))

    return asyncio.run(ask())


def _request(prompt: Sequence[int], seed: int = 0, group: int = 0, **params: Any) -> GenerationRequest:
    return GenerationRequest(
        agent_group=group, prompt_ids=tuple(prompt), params=SamplingParams(**{"max_tokens": 20} | params), seed=seed
    )


def _mixed_requests(count: int = 20) -> list[GenerationRequest]:
    """Ragged prompts, some the same, some one the beginning of another; all kinds of sampling."""
    rng = random.Random(5)
    trunk = [rng.randrange(2, 49) for _ in range(60)]
    kinds = [{}, {"temperature": 0.7, "top_p": 0.8}, {"top_k": 5}, {"min_p": 0.05}, {"temperature": 0.0}]
    return [
        _request(
            trunk[: 17 + 8 * (number % 5)] + [rng.randrange(2, 49) for _ in range((number % 3) * 5)],
            seed=number,
            max_tokens=3 + number % 9,
            **kinds[number % len(kinds)],
        )
        for number in range(count)
    ]


@pytest.mark.parametrize("kind", ["qwen2", "llama"])
def test_greedy_responses_equal_transformers_generate(
    kind: str, tokenizer: Any, model_factory: Callable[..., Any]
) -> None:
    model = model_factory(kind)
    prompts = [[5, 6, 7], [9], [12, 30, 31, 8, 2, 40]]
    got = _ask(_engine(_policy(model, tokenizer)), [_request(p, temperature=0.0) for p in prompts])
    for prompt, completion in zip(prompts, got):
        expected = model.generate(torch.tensor([prompt]), do_sample=False, max_new_tokens=20)[0, len(prompt) :]
        assert list(completion.token_ids) == expected.tolist()


def test_a_response_is_the_same_alone_in_company_in_any_order_and_with_prefixes_reused(
    tokenizer: Any, model_factory: Callable[..., Any]
) -> None:
    policy, requests = _policy(model_factory(), tokenizer), _mixed_requests()
    alone = [_ask(_engine(policy), [request])[0] for request in requests]
    shuffled = random.Random(1).sample(range(len(requests)), len(requests))
    for options in ({}, {"max_rows": 3}, {"cache_tokens": 100000}, {"cache_tokens": 100}):
        engine = _engine(policy, **options)
        for _ in range(2):
            together = _ask(engine, [requests[index] for index in shuffled])
            for index, completion in zip(shuffled, together):
                assert completion.token_ids == alone[index].token_ids, options
                assert completion.finish_reason is alone[index].finish_reason
                assert completion.logprobs == pytest.approx(alone[index].logprobs, abs=1e-5)


def test_logprobs_equal_the_policys_own_scores_at_the_sampling_temperature(
    tokenizer: Any, model_factory: Callable[..., Any]
) -> None:
    policy = _policy(model_factory(), tokenizer)
    requests = [request for request in _mixed_requests() if request.params.temperature > 0]
    completions = _ask(_engine(policy, cache_tokens=1000), requests)
    ids = [[*request.prompt_ids, *completion.token_ids] for request, completion in zip(requests, completions)]
    sequences = Sequences(
        input_ids=torch.tensor([token for row in ids for token in row]),
        offsets=cumulative(torch.tensor([len(row) for row in ids])),
        prompt_lens=torch.tensor([len(request.prompt_ids) for request in requests]),
        response_lens=torch.tensor([len(completion.token_ids) for completion in completions]),
        temperatures=torch.tensor([request.params.temperature for request in requests]),
    )
    got = torch.tensor([logprob for completion in completions for logprob in completion.logprobs])
    torch.testing.assert_close(got, policy.score(sequences).logprobs, atol=1e-5, rtol=1e-4)


def test_stop_tokens_stop_texts_and_length_end_a_response_and_are_kept(
    tokenizer: Any, model_factory: Callable[..., Any]
) -> None:
    engine = _engine(_policy(model_factory(), tokenizer))
    free = _ask(engine, [_request([7, 8], seed=3)])[0]
    text = tokenizer.decode(free.token_ids)
    assert free.finish_reason is FinishReason.LENGTH and len(free.token_ids) == 20
    by_token = _ask(engine, [_request([7, 8], seed=3, stop_token_ids=(free.token_ids[6],))])[0]
    assert by_token.finish_reason is FinishReason.STOP
    assert by_token.token_ids == free.token_ids[: free.token_ids.index(free.token_ids[6]) + 1]
    stop = text[8:11]
    by_text = _ask(engine, [_request([7, 8], seed=3, stop=("never", stop))])[0]
    assert by_text.finish_reason is FinishReason.STOP
    assert tokenizer.decode(by_text.token_ids) == text[: text.index(stop) + 3]


def test_the_models_end_token_ends_a_response(tokenizer: Any, model_factory: Callable[..., Any]) -> None:
    model = model_factory()
    prompt = [4, 4, 9]
    first = _ask(_engine(_policy(model, tokenizer)), [_request(prompt, temperature=0.0)])[0].token_ids[3]
    model.generation_config.eos_token_id = [int(first)]
    ended = _ask(_engine(_policy(model, tokenizer)), [_request(prompt, temperature=0.0)])[0]
    assert ended.finish_reason is FinishReason.STOP and ended.token_ids[-1] == first and len(ended.token_ids) <= 4


def test_prompts_that_cannot_be_served_are_refused(tokenizer: Any, model_factory: Callable[..., Any]) -> None:
    engine = _engine(_policy(model_factory(max_position_embeddings=32), tokenizer))
    with pytest.raises(DagrlError, match="empty"):
        _ask(engine, [_request([])])
    with pytest.raises(DagrlError, match="context"):
        _ask(engine, [_request([3] * 32)])
    last = _ask(engine, [_request([3] * 30)])[0]
    assert len(last.token_ids) <= 2


def test_reused_prefixes_are_forgotten_when_the_weights_change(
    tokenizer: Any, model_factory: Callable[..., Any]
) -> None:
    policy = _policy(model_factory(), tokenizer)
    engine = _engine(policy, cache_tokens=10000)
    requests = _mixed_requests(10)
    _ask(engine, requests)
    with torch.no_grad():
        for weight in policy.network.module.parameters():
            weight.mul_(1.5)
    policy.network.note_change(None)
    fresh = _ask(_engine(policy), requests)
    assert [c.token_ids for c in _ask(engine, requests)] == [c.token_ids for c in fresh]


def test_agents_with_models_of_their_own_are_answered_side_by_side(
    tokenizer: Any, model_factory: Callable[..., Any]
) -> None:
    policies = {group: _policy(model_factory(seed=group), tokenizer) for group in (0, 1)}
    both = HFGenerator(policies, {0: "a", 1: "b"}, max_rows=8, cache_tokens=500)
    requests = [_request([3, 4, number + 5], seed=number, group=number % 2) for number in range(12)]
    together = _ask(both, requests)
    for request, completion in zip(requests, together):
        single = HFGenerator(
            {request.agent_group: policies[request.agent_group]}, {0: "a", 1: "b"}, max_rows=8, cache_tokens=0
        )
        assert _ask(single, [request])[0].token_ids == completion.token_ids


def test_requests_may_arrive_while_others_are_answered(tokenizer: Any, model_factory: Callable[..., Any]) -> None:
    engine, requests = _engine(_policy(model_factory(), tokenizer), max_rows=4), _mixed_requests(14)

    async def one(number: int) -> Completion:
        for _ in range(number * 2):
            await asyncio.sleep(0)
        return await engine.generate(requests[number])

    async def trickle() -> list[Completion]:
        return list(await asyncio.gather(*map(one, range(len(requests)))))

    expected = [completion.token_ids for completion in _ask(engine, requests)]
    assert [completion.token_ids for completion in asyncio.run(trickle())] == expected


def test_a_fault_of_the_model_reaches_every_request_and_the_engine_goes_on(
    tokenizer: Any, model_factory: Callable[..., Any]
) -> None:
    policy = _policy(model_factory(), tokenizer)
    engine = _engine(policy)
    weight = next(policy.network.module.parameters())
    good = weight.detach().clone()
    weight.data.fill_(float("nan"))

    async def ask() -> list[Any]:
        return await asyncio.gather(
            *(engine.generate(request) for request in _mixed_requests(5)), return_exceptions=True
        )

    assert all(isinstance(answer, DagrlError) for answer in asyncio.run(ask()))
    weight.data.copy_(good)
    assert len(_ask(engine, [_request([3, 4])])[0].token_ids) > 0


def test_a_model_with_a_sliding_window_is_refused_by_name(tokenizer: Any, model_factory: Callable[..., Any]) -> None:
    model = model_factory(use_sliding_window=True, sliding_window=8, max_window_layers=0)
    with pytest.raises(DagrlError, match="Qwen2ForCausalLM"):
        _engine(_policy(model, tokenizer))


def test_the_generator_has_the_shape_that_the_player_expects(tokenizer: Any, model_factory: Callable[..., Any]) -> None:
    engine = _engine(_policy(model_factory(), tokenizer))
    assert isinstance(engine, Generator)
    asyncio.run(engine.close())


def test_samples_of_a_prompt_share_its_prefill_and_later_rounds_go_on_from_the_conversation(
    tokenizer: Any, model_factory: Callable[..., Any]
) -> None:
    engine = _engine(_policy(model_factory(), tokenizer), cache_tokens=1000)
    prompt = [3 + number % 40 for number in range(40)]
    assert engine.metrics()["perf/prefix_reused"] == 0.0
    first = _ask(engine, [_request(prompt, seed=seed) for seed in range(4)])
    assert engine.metrics()["perf/prefix_reused"] == pytest.approx(3 / 4)
    # 40 of the prompt and 19 of the response are known, as its last token was never put in; it and two more are not.
    _ask(engine, [_request([*prompt, *first[0].token_ids, 7, 8])])
    assert engine.metrics()["perf/prefix_reused"] == pytest.approx((3 * 40 + 59) / (4 * 40 + 62))


def _spy(engine: HFGenerator) -> list[tuple[str, tuple[int, ...]]]:
    """What each pass of the engine is over: lane, and the seeds of its rows in their order."""
    passes: list[tuple[str, tuple[int, ...]]] = []
    for lane in engine._lanes:

        def step(lane: Any = lane, inner: Callable[[], bool] = lane.step) -> bool:
            has_ended = inner()
            passes.append((lane.name, tuple(row.request.seed for row in lane.rows)))
            return has_ended

        lane.step = step  # type: ignore[method-assign]
    return passes


def _chains(engine: HFGenerator, delays: random.Random) -> None:
    """Twelve conversations of three turns, two agents in turn, away for some turns of the event loop in between."""

    async def converse(number: int) -> None:
        prompt = [2 + number, 7]
        for turn in range(3):
            request = _request(prompt, seed=100 * number + turn, group=turn % 2, max_tokens=2 + (number + turn) % 5)
            completion = await engine.generate(request)
            prompt += completion.token_ids
            with engine.away():
                for _ in range(delays.randrange(300)):
                    await asyncio.sleep(0)

    async def main() -> None:
        async with asyncio.TaskGroup() as group:
            for number in range(12):
                group.create_task(converse(number))

    asyncio.run(main())


def test_with_settling_every_pass_is_the_same_however_fast_the_world_answers(
    tokenizer: Any, model_factory: Callable[..., Any]
) -> None:
    def passes(settle_s: float, seed: int) -> list[tuple[str, tuple[int, ...]]]:
        policies = {group: _policy(model_factory(seed=group), tokenizer) for group in range(2)}
        engine = HFGenerator(policies, {0: "a", 1: "b"}, max_rows=8, cache_tokens=1000, settle_s=settle_s)
        seen = _spy(engine)
        _chains(engine, random.Random(seed))
        return seen

    assert passes(60.0, 1) == passes(60.0, 2)
    assert passes(0.0, 1) != passes(0.0, 2), (
        "without settling the waits decide; if they do not, this test shows nothing"
    )


@pytest.mark.parametrize("num_nodes", [1, 100])
def test_whoever_comes_back_while_the_engine_settles_has_time_to_ask(
    tokenizer: Any, model_factory: Callable[..., Any], num_nodes: int
) -> None:
    policy = _policy(model_factory(), tokenizer)

    def first_pass(turns_away: int) -> tuple[str, tuple[int, ...]]:
        engine = HFGenerator({0: policy}, {0: "a"}, max_rows=8, cache_tokens=0, settle_s=60.0, num_nodes=num_nodes)
        seen = _spy(engine)

        async def back() -> None:
            with engine.away():
                for _ in range(turns_away):
                    await asyncio.sleep(0)
            for _ in range(6 + num_nodes):  # each node on the way that is skipped takes one
                await asyncio.sleep(0)
            await engine.generate(_request([3, 4], seed=1, max_tokens=3))

        async def main() -> None:
            await asyncio.gather(engine.generate(_request([3, 4], seed=0, max_tokens=3)), back())

        asyncio.run(main())
        return seen[0]

    assert {first_pass(turns) for turns in range(1, 40)} == {("agent a", (0, 1))}


def test_a_late_answer_holds_up_nobody(tokenizer: Any, model_factory: Callable[..., Any]) -> None:
    engine = HFGenerator({0: _policy(model_factory(), tokenizer)}, {0: "a"}, max_rows=8, cache_tokens=0, settle_s=0.05)

    async def main() -> None:
        has_answered = asyncio.Event()

        async def slow() -> None:
            with engine.away():
                await has_answered.wait()

        async def fast() -> None:
            for seed in range(3):
                await engine.generate(_request([3, 4], seed=seed))
            has_answered.set()

        async with asyncio.timeout(60):
            await asyncio.gather(slow(), fast())

    asyncio.run(main())
    assert engine.metrics()["perf/went_on_without"] >= 1, "and it is told"
    engine.begin_batch()
    assert engine.metrics()["perf/went_on_without"] == 0


@pytest.mark.parametrize("max_rows", [64, 3])
def test_requests_that_nobody_waits_for_any_more_leave_the_engine_and_the_others_get_what_they_would_have(
    max_rows: int, tokenizer: Any, model_factory: Callable[..., Any]
) -> None:
    policy, requests = _policy(model_factory(), tokenizer), _mixed_requests()
    alone = _ask(_engine(policy), requests)
    engine = _engine(policy, max_rows=max_rows)
    lane = engine._lanes[0]

    async def abort() -> list[Completion]:
        jobs = [asyncio.ensure_future(engine.generate(request)) for request in requests]
        while not lane.rows or len(lane.rows[0].tokens) < 2:
            await asyncio.sleep(0)
        given_up = jobs[1::2]
        for job in given_up:
            job.cancel()
        await asyncio.gather(*given_up, return_exceptions=True)
        assert lane.num_rows <= len(jobs) - sum(job.cancelled() for job in given_up)
        return list(await asyncio.gather(*jobs[::2]))

    assert [one.token_ids for one in asyncio.run(abort())] == [one.token_ids for one in alone[::2]]
    assert not lane.is_busy
