"""Rollouts of a recurrent policy in a grid world (numpy) with seeds: actions are sampled, returns are discounted, GAE."""
import collections
from dataclasses import asdict, dataclass

import numpy as np
import torch
import torch.nn as nn
from torch.distributions import Categorical

import dietcode

Transition = collections.namedtuple("Transition", "obs action reward done value logp")


class GridWorld:
    MOVES = np.array([(-1, 0), (1, 0), (0, -1), (0, 1)])

    def __init__(self, size=4, max_steps=12):
        self.size, self.max_steps = size, max_steps

    def reset(self, seed):
        self.rng = np.random.RandomState(seed)
        self.agent = self.rng.randint(0, self.size, 2)
        self.goal = self.rng.randint(0, self.size, 2)
        self.holes = {tuple(h) for h in self.rng.randint(0, self.size, (2, 2))} - {tuple(self.goal), tuple(self.agent)}
        self.t = 0
        return self.observe()

    def observe(self):
        obs = np.zeros(8, dtype=np.float32)
        obs[:2] = self.agent / self.size
        obs[2:4] = (self.goal - self.agent) / self.size
        for k, move in enumerate(self.MOVES):
            obs[4 + k] = float(tuple(self.agent + move) in self.holes)
        return obs

    def step(self, action):
        self.t += 1
        self.agent = np.clip(self.agent + self.MOVES[action], 0, self.size - 1)
        if tuple(self.agent) in self.holes:
            return self.observe(), -1.0, True, {"why": "hole"}
        if np.array_equal(self.agent, self.goal):
            return self.observe(), 1.0, True, {"why": "goal"}
        return self.observe(), -0.01, self.t >= self.max_steps, {"why": "time"}


class ActorCritic(nn.Module):
    def __init__(self, hidden=16):
        super().__init__()
        self.hidden = hidden
        self.body, self.memory = nn.Linear(8, hidden), nn.GRUCell(hidden, hidden)
        self.pi, self.v = nn.Linear(hidden, 4), nn.Linear(hidden, 1)

    def forward(self, obs, h):
        h = self.memory(torch.relu(self.body(torch.from_numpy(obs))), h)
        return Categorical(logits=self.pi(h)), self.v(h).squeeze(-1), h


@dataclass
class Episode:
    steps: int
    why: str
    total: float
    actions: list


torch.manual_seed(0)
policy = ActorCritic().eval()


def play(seed, greedy):
    env, rng = GridWorld(), np.random.default_rng(seed)
    obs, h, done, trajectory = env.reset(seed), torch.zeros(policy.hidden), False, []
    info = {}
    while not done:
        dist, value, h = policy(obs, h)
        probs = dist.probs.numpy()
        action = int(probs.argmax()) if greedy else int((probs.cumsum() < rng.random()).sum().clip(max=3))
        logp = dist.log_prob(torch.tensor(action))
        next_obs, reward, done, info = env.step(action)
        trajectory.append(Transition(obs, action, reward, done, value, logp))
        obs = next_obs
    return trajectory, info["why"]


@dietcode.program
def rollout(seed):
    trajectory, why = play(seed, greedy=False)
    return asdict(Episode(len(trajectory), why, sum(t.reward for t in trajectory), [t.action for t in trajectory]))


@dietcode.program
def advantages(seed, gamma=0.99, lam=0.95):
    trajectory, _ = play(seed, greedy=True)
    batch = Transition(*zip(*trajectory))
    values = np.array([v.item() for v in batch.value] + [0.0])
    rewards, dones = np.array(batch.reward), np.array(batch.done, dtype=float)
    adv, last = np.zeros_like(rewards), 0.0
    for t in reversed(range(len(rewards))):
        delta = rewards[t] + gamma * values[t + 1] * (1 - dones[t]) - values[t]
        adv[t] = last = delta + gamma * lam * (1 - dones[t]) * last
    policy_loss = -(torch.stack(batch.logp) * torch.as_tensor(adv, dtype=torch.float32)).mean()
    return adv, policy_loss, torch.stack(batch.value)


PROGRAMS = [
    (rollout, lambda: list(range(8)), lambda: [100, 101, 102, 7]),
    (advantages, lambda: [0, 1, 2, 3], lambda: [50, (51, 0.5), (52, 0.9, 0.0)]),
]
