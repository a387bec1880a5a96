"""Tests of the reward routes of OpenRLHF and slime: what their code sends over HTTP, and what it gets."""

from __future__ import annotations

import asyncio
import json
import math

import pytest

from kerneldyno.rewards import presets
from kerneldyno.v1.evaluation_pb2 import SPEEDUP_KIND_END_TO_END
from kerneldyno.v1.reward_service_pb2 import RewardSpec
from tests.gateway.gateway_harness import PROBLEMS, PROMPT, REFERENCE, gateway, response

#: The kevin preset pays 0.3 for a correct candidate, plus its speedup.
RIGHT = 0.3


async def test_openrlhf_gets_lists_in_the_order_of_its_queries() -> None:
    async with gateway() as served:
        pairs = [(response(f"speedup={1 + index / 4}", str(index)), "first") for index in range(5)]
        pairs.append((response("outcome=INCORRECT"), "second"))
        answer = (await served.get_reward(*pairs)).json()
        logged = (await served.get_reward(*pairs, query="?extra_logs=1")).json()
    assert answer["rewards"] == pytest.approx([RIGHT + 1 + index / 4 for index in range(5)] + [0.0])
    assert answer["scores"] == answer["rewards"]
    assert answer["extra_logs"] == {}, "what some releases call item() on"
    assert logged["rewards"] == answer["rewards"]
    assert logged["extra_logs"]["correct"] == [1.0] * 5 + [0.0]
    assert {len(values) for values in logged["extra_logs"].values()} == {6}


async def test_the_prompts_own_example_is_never_taken_for_the_answer() -> None:
    async with gateway() as served:
        nothing = (await served.get_reward(("I cannot do that.", "first"))).json()
        other = await served.post(
            "/get_reward", {"query": ["other text" + response()], "prompts": [PROMPT], "labels": ["first"]}
        )
        cut = await served.post(
            "/get_reward", {"query": [PROMPT + response()], "prompts": ["Long. " * 99 + PROMPT], "labels": ["first"]}
        )
        assert not served.node.started[1:]
    assert nothing["rewards"] == [0.0]
    assert other.status_code == 400
    assert "its prompt is not in it" in other.json()["message"]
    assert cut.json()["rewards"] == [pytest.approx(RIGHT + 2.0)], "the prompt's beginning was cut off, as trainers do"


async def test_a_prompt_that_repeats_its_end_is_taken_whole() -> None:
    """Otherwise the gateway would pay a model that says nothing for the example in the prompt."""
    ask = "Write a kernel that is right for all inputs, and as fast as you can make it. " * 4 + "\nAnswer:\n"
    prompt = ask + response("speedup=9", "the example") + ask
    async with gateway() as served:
        for front in (prompt, prompt[50:], prompt[len(ask) :]):
            body = {"query": [front], "prompts": [prompt], "labels": ["first"]}
            assert (await served.post("/get_reward", body)).json()["rewards"] == [0.0]
            body["query"] = [front + response("speedup=2", "the answer")]
            assert (await served.post("/get_reward", body)).json()["rewards"] == [pytest.approx(RIGHT + 2.0)]
        assert len(served.node.started) == 1


async def test_what_a_model_may_write_costs_it_its_reward_and_no_other_its_own() -> None:
    """A 400 for one response would lose the rewards of a whole batch."""
    pairs = [("y" * (1 << 20) + "z", "first"), (response(), "first"), ("", "first")]
    async with gateway() as served:
        answer = await served.get_reward(*pairs)
        body = json.dumps({"response": "\ud800", "label": "first"})
        half = await served.http.post("/rm", content=body, headers={"Content-Type": "application/json"})
    assert answer.json()["rewards"] == [0.0, pytest.approx(RIGHT + 2.0), 0.0]
    assert (half.status_code, half.json()) == (200, 0.0)


async def test_code_in_reasoning_that_the_template_began_and_nobody_ended_is_no_answer() -> None:
    prompt = PROMPT + "<think>\n"
    cut, ended = "Perhaps so: " + response(), "Perhaps so.</think>" + response()
    async with gateway() as served:
        queries = {"query": [prompt + cut, prompt + ended], "prompts": [prompt] * 2, "labels": ["first"] * 2}
        assert (await served.post("/get_reward", queries)).json()["rewards"] == [0.0, pytest.approx(RIGHT + 2.0)]
        for text, reward in ((cut, 0.0), (ended, RIGHT + 2.0)):
            answer = await served.post("/rm", {"prompt": prompt, "response": text, "label": "first"})
            assert answer.json() == pytest.approx(reward)
        chat = {"prompt": [{"role": "user", "content": "x"}], "response": ended, "label": "first"}
        assert (await served.post("/rm", chat)).json() == pytest.approx(RIGHT + 2.0)


@pytest.mark.parametrize(
    "label",
    [
        "first",
        REFERENCE,
        {"problem": "first"},
        json.dumps({"problem": "first"}),
        json.dumps({"reference_code": REFERENCE, "options": {"num_perf_trials": 7}}),
        {"reward_model": {"ground_truth": REFERENCE}, "extra_info": {"entry_point": "Model", "uuid": "u-1"}},
    ],
    ids=["id", "code", "object", "json", "json-code", "verl-row"],
)
async def test_labels(label: object) -> None:
    async with gateway() as served:
        answer = await served.rm(response(), label)
    assert (answer.status_code, answer.json()) == (200, pytest.approx(RIGHT + 2.0))


async def test_the_spec_says_which_speedup_is_paid_and_told() -> None:
    spec = RewardSpec(preset="kevin", speedup_kind=SPEEDUP_KIND_END_TO_END)
    text = response("speedup=1.5 end_to_end=2.5")
    async with gateway({"reward": presets.spec(spec)}) as served:
        slime = (await served.rm(text, "first", "?form=object")).json()
        openrlhf = (await served.get_reward((text, "second"), query="?extra_logs=1")).json()
        older = await served.rm(response("speedup=1.5 end_to_end=none"), "first")
    assert (slime["score"], slime["speedup"]) == (pytest.approx(2.8), 2.5)
    assert openrlhf["rewards"] == [pytest.approx(2.8)]
    assert openrlhf["extra_logs"]["speedup"] == [2.5]
    assert older.status_code == 422, "a repetition would find the same"
    assert "not timed end to end" in older.text


async def test_the_turn_may_say_which_speedup_counts() -> None:
    async with gateway({"options": {"speedup_kind": "end-to-end"}}) as served:
        told = (await served.rm(response("speedup=1.5 end_to_end=2.5"), "first", "?form=object")).json()
    assert (told["score"], told["speedup"]) == (pytest.approx(2.8), 2.5)


async def test_slime_gets_a_number_or_an_object() -> None:
    async with gateway() as served:
        number = (await served.rm(response("speedup=1.5"), "first")).json()
        both = (await served.rm(response("speedup=1.5"), "first", "?form=object")).json()
        wrong = (await served.rm(response("outcome=RUNTIME_ERROR"), "first", "?form=object")).json()
    assert number == pytest.approx(1.8)
    assert both["score"] == pytest.approx(1.8)
    assert (both["outcome"], both["correct"], both["speedup"]) == ("CORRECT", True, 1.5)
    assert (wrong["score"], wrong["outcome"], wrong["correct"]) == (0.0, "RUNTIME_ERROR", False)
    assert both.keys() == wrong.keys(), "trainers make columns of them"


async def test_a_request_that_is_repeated_runs_nothing_twice() -> None:
    async with gateway(node={"mean_seconds": 0.3}) as served:
        first, again = await asyncio.gather(served.rm(response(), "first"), served.rm(response(), "first"))
        later = await served.rm(response(), "first")
        assert len(served.node.started) == 1
    assert first.json() == again.json() == later.json() == pytest.approx(RIGHT + 2.0)


async def test_a_slow_evaluation_is_answered_503_and_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kerneldyno.gateway.trainers.SLIME_SECONDS", 0.05)
    async with gateway() as served:
        early = await served.rm(response("speedup=2.0 sleep=1.0"), "first")
        assert early.status_code == 503
        assert int(early.headers["Retry-After"]) >= 1
        assert "continues" in early.json()["message"]
        while (late := await served.rm(response("speedup=2.0 sleep=1.0"), "first")).status_code == 503:  # noqa: ASYNC110
            await asyncio.sleep(0.1)
        assert len(served.node.started) == 1
    assert late.json() == pytest.approx(RIGHT + 2.0)


async def test_infrastructure_that_fails_is_503_and_never_a_reward() -> None:
    script = "outcome=INFRASTRUCTURE_ERROR retryable=no node=n1"
    async with gateway() as served:
        one = await served.rm(response(script), "first")
        many = await served.get_reward((response(), "first"), (response(script), "first"))
        assert one.status_code == many.status_code == 503
        assert one.headers["Retry-After"] == "5"
        assert "no verdict, try again" in one.json()["message"]
        assert "rewards" not in many.json()
        # The verdict of the first response is kept: it is there when that response comes again without the other.
        before = len(served.node.started)
        assert (await served.get_reward((response(), "first"))).json()["rewards"] == [pytest.approx(RIGHT + 2.0)]
        assert len(served.node.started) == before
        served.node.node_id = "n2"  # the script fails on n1 only
        assert (await served.rm(response(script), "first")).json() == pytest.approx(RIGHT + 1.0), "it is tried anew"


@pytest.mark.parametrize(
    ("outcome", "says"),
    [("REFERENCE_ERROR", "correct the problem"), ("PROBLEM_TOO_LARGE", "too large for every device")],
)
async def test_a_problem_that_cannot_be_judged_is_422(outcome: str, says: str) -> None:
    async with gateway() as served:
        answer = await served.rm(response(f"outcome={outcome}"), "first")
    assert answer.status_code == 422
    assert says in answer.json()["message"]
    assert "Retry-After" not in answer.headers


async def test_a_scheduler_that_is_away_is_503() -> None:
    async with gateway({"reconnect_seconds": 0.5}) as served:
        await served.stop_scheduler()
        answer = await served.rm(response(), "first")
        health = await served.http.get("/health")
    assert answer.status_code == 503
    assert "away" in answer.json()["message"]
    assert health.status_code == 503
    assert health.json()["status"] == "unhealthy"


async def test_64_at_once() -> None:
    async with gateway(node={"mean_seconds": 0.05, "lanes": 16}) as served:
        answers = await asyncio.gather(
            *(served.rm(response(f"speedup={1 + index}", str(index)), "first") for index in range(64))
        )
        page = (await served.http.get("/metrics")).text
    assert [answer.json() for answer in answers] == pytest.approx([1.3 + index for index in range(64)])
    assert 'kerneldyno_gateway_requests_total{route="/rm",status="200"} 64.0' in page


BAD_RM = [
    ({}, "response"),
    ({"response": 3, "label": "first"}, "response"),
    ({"response": "x"}, "label"),
    ({"response": "x", "label": None}, "NoneType"),
    ({"response": "x", "label": 7}, "int"),
    ({"response": "x", "label": "unknown"}, "is not the id of a problem"),
    ({"response": "x", "label": "{broken"}, "not JSON"),
    ({"response": "x", "label": {"problem": 3}}, "is not the id of a problem"),
    ({"response": "x", "label": {"reference_code": ""}}, "no reference"),
    ({"response": "x", "label": {"reference_code": REFERENCE, "options": {"num_perf_trials": 0}}}, "num_perf_trials"),
    ({"response": "x", "label": {"reference_code": REFERENCE, "options": {"kernel_code": "x"}}}, "kernel_code"),
    ({"response": "x", "label": {"reference_code": REFERENCE, "id": "x" * 151}}, "is not an id"),
    ({"response": "x", "label": {"reference_code": "def f(): '\ud800'"}}, "half a surrogate pair"),
    ({"response": response(), "label": {"reference_code": REFERENCE, "options": {"enable_profiling": True}}}, "profil"),
]


@pytest.mark.parametrize(("body", "complaint"), BAD_RM, ids=range(len(BAD_RM)))
async def test_bad_input_is_400_and_runs_nothing(body: dict[str, object], complaint: str) -> None:
    async with gateway() as served:
        answer = await served.http.post("/rm", content=json.dumps(body), headers={"Content-Type": "application/json"})
        assert (answer.status_code, served.node.started) == (400, []), answer.text
    assert complaint in answer.json()["message"]


BAD_QUERIES = [
    ({}, "query: missing"),
    ({"query": "x", "prompts": [], "labels": []}, "query: missing"),
    ({"query": [], "prompts": [], "labels": []}, "1 to 1024"),
    ({"query": ["x"], "prompts": ["x", "y"], "labels": ["first"]}, "give equally many"),
    ({"query": [1], "prompts": ["x"], "labels": ["first"]}, "list of texts"),
    ({"query": ["x"], "prompts": [""], "labels": ["first"]}, "its prompt is not in it"),
    ({"query": ["x y"], "prompts": ["x"], "labels": ["nothing"]}, "labels[0]"),
]


@pytest.mark.parametrize(("body", "complaint"), BAD_QUERIES, ids=range(len(BAD_QUERIES)))
async def test_bad_queries_are_400(body: dict[str, object], complaint: str) -> None:
    async with gateway() as served:
        answer = await served.post("/get_reward", body)
        assert (answer.status_code, served.node.started) == (400, []), answer.text
    assert complaint in answer.json()["message"]


async def test_rewards_are_finite_numbers() -> None:
    async with gateway() as served:
        rewards = (await served.get_reward(*[(response(f"speedup={s}"), "third") for s in ("0.001", "900")])).json()
    assert all(math.isfinite(reward) for reward in rewards["rewards"])
    assert len(PROBLEMS) == 3
