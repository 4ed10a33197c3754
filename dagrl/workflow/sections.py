"""The sections of a workflow file's `config`: every key, its type, its default and what it means. Frozen."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field

from dagrl.workflow.algorithm_section import AlgorithmSpec
from dagrl.workflow.budgets import StopSpec
from dagrl.workflow.fields import BelowOne, Count, Fraction, NonNegative, Paths, Positive, PositiveInt, Spec


class SamplingSpec(Spec):
    """How responses are sampled."""

    temperature: NonNegative = 1.0
    """0 is greedy."""
    top_p: Annotated[float, Field(gt=0.0, le=1.0)] = 1.0
    """Nucleus sampling: draws from the fewest tokens whose probabilities sum to this; 1 keeps all."""
    top_k: Annotated[int, Field(ge=-1)] = 0
    """Draws from so many of the likeliest tokens; 0 or -1 keeps all."""
    min_p: Fraction = 0.0
    """Leaves out tokens less likely than this share of the likeliest one's probability; 0 keeps all."""
    max_tokens: PositiveInt = 256
    """Longest response of one turn, in tokens."""
    stop: Paths = ()
    """Texts that end a response; the text found is kept."""
    stop_token_ids: tuple[int, ...] = ()
    """Tokens that end a response, besides the model's own end tokens."""
    seed: int | None = None
    """Replaces `trainer.seed` for these draws."""


class ValSamplingSpec(SamplingSpec):
    """How held-out problems are played."""

    temperature: NonNegative = 0.0
    """0 is greedy: held-out numbers do not depend on the draw."""
    n: PositiveInt = 1
    """Samples of each held-out problem."""


class SamplingOverride(Spec):
    """What one agent group or one node samples otherwise than `rollout.sampling`; what is not given stays."""

    temperature: NonNegative | None = None
    """0 is greedy."""
    top_p: Annotated[float, Field(gt=0.0, le=1.0)] | None = None
    """Smallest set of likeliest tokens whose probabilities sum to this."""
    top_k: Annotated[int, Field(ge=-1)] | None = None
    """Number of likeliest tokens kept; 0 or -1 keeps all."""
    min_p: Fraction | None = None
    """Least probability of a token, as a share of the likeliest one's."""
    max_tokens: PositiveInt | None = None
    """Longest response of one turn, in tokens."""
    stop: Paths | None = None
    """Texts that end a response; replaces the list, does not add to it."""
    stop_token_ids: tuple[int, ...] | None = None
    """Tokens that end a response; replaces the list, does not add to it."""
    seed: int | None = None
    """Replaces `trainer.seed` for these draws."""


class AdapterSpec(Spec):
    """A LoRA adapter (Hu et al. 2021) in place of training all weights."""

    r: PositiveInt = 8
    """Rank of the two matrices whose product is added to a weight."""
    alpha: Positive = 16.0
    """The product is scaled by alpha / r."""
    dropout: Fraction = 0.0
    """Only 0 is built: with dropout, log-probs taken and log-probs trained would differ."""
    target_modules: Paths | Literal["all-linear"] = "all-linear"
    """Names of the layers that get one; `all-linear` is every linear layer but the output head."""
    shared_base: bool = True
    """True: all groups with the same `model` share one copy of the frozen base, which is their reference too."""


class ModelSpec(Spec):
    """A causal language model."""

    path: str | None = None
    """Hugging Face name or folder."""
    recipe: str | None = None
    """`file.py:function` that makes the model's folder on first use: `function(folder, progress, **recipe_kwargs)`."""
    recipe_kwargs: dict[str, Any] = {}
    """Keyword arguments for the recipe."""
    tokenizer: str | None = None
    """Another tokenizer than the model's own: Hugging Face name or folder."""
    dtype: Literal["float32", "bfloat16"] = "float32"
    """bfloat16 keeps float32 master weights in the optimizer."""
    gradient_checkpointing: bool = False
    """Recomputes activations in the backward pass: less memory, about a third more time."""
    attn_implementation: Literal["sdpa", "eager", "flash_attention_2"] = "sdpa"
    """Which attention kernel transformers uses; flash_attention_2 needs its package and a GPU."""
    trust_remote_code: bool = False
    """Lets the model's folder bring Python code that is run. Only for sources you trust."""
    device: str | None = None
    """`cpu`, `cuda`, `cuda:1`; the first GPU where there is one, if not given."""


class ServerSpec(Spec):
    """A server with OpenAI's endpoints that speaks for an agent. Only for agents that are not trained; a key is taken
    from the environment variable OPENAI_API_KEY."""

    url: str
    """Its address, such as `http://127.0.0.1:8000/v1`; /v1 is added where there is no path."""
    model: str | None = None
    """Name of the model there; may be left out where it serves one only."""
    timeout_s: Positive = 120.0
    """Longest time of one try."""
    budget_s: Positive = 600.0
    """Longest time of all tries for one answer; afterwards the trajectory has failed."""


class OptimSpec(Spec):
    """AdamW (Loshchilov & Hutter 2019) and its schedule, counted in optimizer steps."""

    lr: NonNegative = 1e-6
    """Peak learning rate."""
    betas: tuple[BelowOne, BelowOne] = (0.9, 0.999)
    """Decay of the running means of gradient and squared gradient."""
    eps: Positive = 1e-8
    """Added to the root of the squared gradient's mean."""
    weight_decay: NonNegative = 0.0
    """Decoupled decay, on matrices only, not on biases and norms."""
    grad_clip: Positive | None = 1.0
    """Largest global gradient norm; null does not clip."""
    schedule: Literal["constant", "linear", "cosine"] = "constant"
    """Shape of the learning rate after warm-up."""
    warmup_steps: Count = 0
    """Optimizer steps of linear rise to `lr`."""
    total_steps: PositiveInt | None = None
    """Where `linear` and `cosine` end; counted from the run's length if not given."""
    min_lr_ratio: Fraction = 0.0
    """Where `linear` and `cosine` end, as a share of `lr`."""


class CriticOptimSpec(OptimSpec):
    """As `OptimSpec`, with the larger learning rate that critics take."""

    lr: NonNegative = 1e-5
    """Peak learning rate."""


class DataSpec(Spec):
    train_files: Paths = ()
    """Parquet, jsonl or json files, or Hugging Face names (`name` or `name:split`)."""
    val_files: Paths = ()
    """Held-out problems, in the same forms; none if empty. Several sets: `trainer.eval`."""
    train_batch_size: PositiveInt = 64
    """Prompts per step."""
    val_batch_size: PositiveInt | None = None
    """Held-out prompts played at once; all, if not given."""
    val_max_prompts: PositiveInt | None = None
    """Only the first so many held-out prompts, of each set; all, if not given."""
    shuffle: bool = True
    """A new order of the training data in every epoch, from `trainer.seed`."""
    max_prompt_length: PositiveInt | None = None
    """Longest training prompt in tokens, before any hook, for the tokenizer of every agent."""
    filter_overlong_prompts: bool = False
    """True drops longer prompts (counted); false refuses the data."""
    columns: dict[str, str] = {}
    """Column names where they differ: `{prompt: problem, ground_truth: answer}`."""
    on_bad_row: Literal["fail", "drop"] = "fail"
    """Rows that cannot be used: `fail` refuses the data, `drop` leaves them out (counted). Both name row and column."""


class RolloutSpec(Spec):
    engine: Literal["transformers", "vllm"] = "transformers"
    """What generates: `transformers` is built in; vllm is not built yet. A server can speak for an agent that is not
    trained: `agent_groups.<group>.server`."""
    n: PositiveInt = 1
    """Samples of each prompt."""
    max_rounds: PositiveInt = 1
    """Passes through the play graph (siiRL: `multi_turn.max_assistant_turns`)."""
    max_context_len: PositiveInt = 4096
    """Tokens of the whole conversation of one agent, its own response included."""
    sampling: SamplingSpec = SamplingSpec()
    """Sampling of the training conversations."""
    val_kwargs: ValSamplingSpec = ValSamplingSpec()
    """Sampling on held-out problems."""
    rewards_with_env: bool = False
    """True takes the rewards from the environment."""
    use_all_traj: bool = True
    """True trains every round; false only each agent's last."""
    env_text: Literal["response", "transcript"] = "response"
    """What the environment gets as actions; `transcript` is siiRL's way."""
    env_timeout_s: Positive = 60.0
    """Longest time of one call into an environment."""
    hook_timeout_s: Positive = 60.0
    """Longest time of one call of a hook."""
    reward_timeout_s: Positive = 300.0
    """Longest time of one call of a reward function of your own."""
    env_workers: PositiveInt = 2
    """Processes that environments live in."""
    max_failed_fraction: Fraction = 0.05
    """The run stops when more trajectories of a step failed."""
    max_concurrency: PositiveInt = 1024
    """Trajectories in play at once."""
    max_batch_size: PositiveInt = 256
    """Generations that the embedded engine advances together."""
    settle_s: NonNegative = 1.0
    """How long an environment's answer may hold up the next pass of the embedded engine. Within it passes are larger,
    and the same seed gives bit-identical runs; 0 never waits, and responses may then differ by rounding."""
    prefix_cache_tokens: Count = 262144
    """Tokens of finished conversations whose keys and values the embedded engine keeps; 0 turns it off."""


class UpdateSpec(Spec):
    """How one model is updated in a step."""

    optim: OptimSpec = OptimSpec()
    """Optimizer and schedule."""
    ppo_epochs: PositiveInt = 1
    """Passes over the batch in one step."""
    ppo_mini_batch_size: PositiveInt | None = None
    """Trajectories per optimizer step; the whole batch if not given."""
    micro_batch_tokens: PositiveInt = 16384
    """Tokens (padding included) of one forward and backward pass; does not change the result."""
    logprob_chunk_tokens: PositiveInt = 2048
    """Response tokens whose logits exist at once."""


class ActorSpec(UpdateSpec):
    clip_ratio: Positive = 0.2
    """PPO's ε: how far the ratio new / old may move from 1 and still earn."""
    clip_ratio_low: Positive | None = None
    """ε below 1; `clip_ratio` if not given."""
    clip_ratio_high: Positive | None = None
    """ε above 1; `clip_ratio` if not given."""
    clip_ratio_c: Annotated[float, Field(gt=1.0)] | None = 3.0
    """Dual clip (Ye et al. 2020); null turns it off."""
    entropy_coeff: float = 0.0
    """Weight of the entropy bonus (nats per token); 0 turns it off."""
    use_kl_loss: bool = False
    """Adds the KL to the reference to the loss; needs a REFERENCE node."""
    kl_loss_coef: NonNegative = 0.001
    """What that KL is multiplied with, at first if adaptive."""
    kl_loss_type: Literal["k1", "k2", "k3", "abs"] = "k3"
    """Estimator of that KL; its gradient counts, and k1 has none on average."""
    kl_loss_ctrl: Literal["fixed", "adaptive"] = "fixed"
    """fixed keeps `kl_loss_coef`; adaptive steers to `kl_loss_target`."""
    kl_loss_target: Positive = 0.1
    """KL that adaptive steers to, in nats per token."""
    kl_loss_horizon: Positive = 10000.0
    """How slowly adaptive reacts, in trajectories."""
    target_kl: Positive | None = None
    """Stops the epochs of a step when KL(old, new) passes it; counted as `early_stop`."""
    overlong_filtering: bool = False
    """True does not train on responses that were cut for their length (DAPO); their rewards still count in groups."""
    old_logprobs: Literal["recompute", "rollout"] = "recompute"
    """`rollout` takes the sampler's log-probs and needs no node that recomputes them."""
    rollout_correction: Literal["none", "tis", "mis", "decoupled"] = "none"
    """Weighs each token's loss by w = recomputed / sampler's probability: tis at most the cap, mis 0 outside [1 / cap,
    cap], decoupled w as it is (decoupled PPO)."""
    rollout_correction_cap: Annotated[float, Field(gt=1.0)] = 2.0
    """The cap of tis and mis."""


class CriticSpec(UpdateSpec):
    optim: CriticOptimSpec = CriticOptimSpec()
    """Optimizer and schedule."""
    model: ModelSpec | None = None
    """The group's model if not given."""
    kind: Literal["model", "value_head"] = "model"
    """model: all weights and a scalar head are trained; value_head: a frozen base and a small MLP head (MARFT)."""
    head_hidden: PositiveInt = 1024
    """Width of the first layer of `value_head`'s MLP."""
    cliprange_value: Positive | None = 0.5
    """How far a value may move from the old one and still earn; null does not clip."""
    huber_delta: Positive | None = None
    """Huber instead of squared error (MARFT: 10)."""


class EvalSetSpec(Spec):
    """One of several held-out sets, and how all agents sample on it; what is not given comes from `rollout.val_kwargs`.
    """

    name: str | None = None
    """In metrics (`val/<name>/…`) and names of files; that of its first file, without folder and ending, if not
    given."""
    files: Annotated[Paths, Field(min_length=1)]
    """Its problems, in the forms of `data.train_files`."""
    k: PositiveInt | None = None
    """Samples of each problem; `rollout.val_kwargs.n` if not given."""
    temperature: NonNegative | None = None
    """0 is greedy."""
    top_p: Annotated[float, Field(gt=0.0, le=1.0)] | None = None
    """Smallest set of likeliest tokens whose probabilities sum to this."""
    top_k: Annotated[int, Field(ge=-1)] | None = None
    """Number of likeliest tokens kept; 0 or -1 keeps all."""
    min_p: Fraction | None = None
    """Least probability of a token, as a share of the likeliest one's."""
    max_tokens: PositiveInt | None = None
    """Longest response of one turn, of every agent."""
    seed: int | None = None
    """Replaces `trainer.seed` for these draws."""


class TrainerSpec(Spec):
    total_steps: PositiveInt | None = None
    """Length of the run in steps; counted from `total_epochs` if not given."""
    total_epochs: PositiveInt = 1
    """Passes through the training data; `total_steps` goes before it."""
    seed: int = 1
    """Every random draw of the run comes from it."""
    critic_warmup: Count = 0
    """First steps in which only critics are trained."""
    keep_last: PositiveInt | None = None
    """Newest checkpoints that are kept; all if not given."""
    keep_best: Count = 1
    """Checkpoints with the highest held-out accuracy that are kept besides those."""
    save_freq: Count = 0
    """Steps between checkpoints; 0 only at the end."""
    save_minutes: Positive | None = None
    """Minutes from one checkpoint to the next, which is made after the step; besides `save_freq`, by steps alone if not
    given."""
    test_freq: Count = 0
    """Steps between evaluations on the held-out set; 0 only before (`val_before_train`) and after the training."""
    eval: tuple[EvalSetSpec, ...] = ()
    """Several held-out sets, each with its own sampling, in place of `data.val_files`."""
    best_set: str | None = None
    """The set of `eval` that counts: its scores are also `val/accuracy` and the like, which the best checkpoint,
    `min_improvement` and `stop_when.held_out_accuracy` go by, and `val_without` is played on it; the first if not
    given."""
    val_before_train: bool = True
    """Evaluates before the first step, so that there is something to compare with."""
    val_without: tuple[str, ...] = ()
    """Rollout nodes that the closing report leaves out one by one, to show what each brings."""
    role_gradients_freq: Count = 0
    """Steps between measurements of what each role does to a policy that several rollout nodes share: the norm of its
    part of the gradient and its cosine with the others'; 0 never. Costs a pass forward and backward over the batch."""
    probe_freq: Count = 0
    """Steps between probes of how much each agent's message changes what the others answer (`influence/*`); 0 never."""
    probe_conversations: PositiveInt = 16
    """Conversations that are probed at a time, each played again without each agent's text; nothing is generated."""
    runs_dir: str = "runs"
    """Folder that holds `<dag_id>/<time>/`, from the working directory."""
    show_sample_freq: Count = 10
    """Steps between sample conversations on the terminal; 0 never."""
    log_trajectories: bool = True
    """Writes every turn of every trajectory as parquet."""
    trace_steps: Count = 100
    """So many first steps are in trace.json; of as many again every second one, of twice as many every fourth, and so
    on. 0 writes no trace."""
    min_improvement: float | None = None
    """The command ends with exit code 1 if held-out accuracy did not rise by so much."""
    on_logprob_drift: Literal["warn", "stop"] = "warn"
    """What happens where sampler and trainer give a token log-probs further apart than the bound of the dtype."""


class ExecutorSpec(Spec):
    kind: Literal["local"] = "local"
    """One process that a debugger can enter."""
    num_threads: PositiveInt | None = None
    """torch's threads; its own choice if not given."""


class ConfigSpec(Spec):
    data: DataSpec = DataSpec()
    """Where problems come from."""
    model: ModelSpec = ModelSpec()
    """The model of every agent that has none of its own."""
    rollout: RolloutSpec = RolloutSpec()
    """How conversations are played."""
    algorithm: AlgorithmSpec = AlgorithmSpec()
    """How rewards become advantages and losses."""
    actor: ActorSpec = ActorSpec()
    """How policies are updated."""
    critic: CriticSpec = CriticSpec()
    """How critics are made and updated."""
    trainer: TrainerSpec = TrainerSpec()
    """Length of the run, evaluation, checkpoints."""
    stop_when: StopSpec = StopSpec()
    """Budgets that end the run early."""
    executor: ExecutorSpec = ExecutorSpec()
    """Where the run's work is done."""
