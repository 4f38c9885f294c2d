"""Seq2seq with Bahdanau attention: greedy, beam search, and scoring of given targets."""
import math
import random

import torch
import torch.nn as nn
import torch.nn.functional as F

import dietcode

PAD, SOS, EOS, UNK = range(4)
VOCAB = 14


class Encoder(nn.Module):
    def __init__(self, emb=10, hid=12):
        super().__init__()
        self.hid = hid
        self.embedding = nn.Embedding(VOCAB, emb, padding_idx=PAD)
        self.fwd, self.bwd = nn.GRUCell(emb, hid), nn.GRUCell(emb, hid)
        self.fc = nn.Linear(2 * hid, hid)
        self.dropout = nn.Dropout(0.5)

    def forward(self, src):
        embedded = self.dropout(self.embedding(torch.tensor(src)))
        f = b = torch.zeros(self.hid)
        fs, bs = [], []
        for t in range(len(src)):
            f = self.fwd(embedded[t], f)
            fs.append(f)
        for t in reversed(range(len(src))):
            b = self.bwd(embedded[t], b)
            bs.insert(0, b)
        outputs = torch.stack([torch.cat((x, y)) for x, y in zip(fs, bs)])
        return outputs, torch.tanh(self.fc(torch.cat((f, b))))


class Attention(nn.Module):
    def __init__(self, hid=12):
        super().__init__()
        self.attn = nn.Linear(3 * hid, hid)
        self.v = nn.Linear(hid, 1, bias=False)

    def forward(self, hidden, encoder_outputs):
        src_len = encoder_outputs.shape[0]
        hidden = hidden.unsqueeze(0).repeat(src_len, 1)
        energy = torch.tanh(self.attn(torch.cat((hidden, encoder_outputs), dim=1)))
        return F.softmax(self.v(energy).squeeze(1), dim=0)


class Decoder(nn.Module):
    def __init__(self, emb=10, hid=12):
        super().__init__()
        self.embedding = nn.Embedding(VOCAB, emb)
        self.attention = Attention(hid)
        self.rnn = nn.GRUCell(2 * hid + emb, hid)
        self.out = nn.Linear(3 * hid + emb, VOCAB)

    def forward(self, token, hidden, encoder_outputs):
        embedded = self.embedding(torch.tensor(token))
        a = self.attention(hidden, encoder_outputs)
        weighted = torch.matmul(a, encoder_outputs)
        hidden = self.rnn(torch.cat((embedded, weighted)), hidden)
        return 4 * self.out(torch.cat((hidden, weighted, embedded))), hidden, a


class Beam(object):
    def __init__(self, tokens, log_prob, hidden):
        self.tokens, self.log_prob, self.hidden = tokens, log_prob, hidden

    def extend(self, token, log_prob, hidden):
        return Beam(self.tokens + [token], self.log_prob + log_prob, hidden)

    @property
    def latest_token(self):
        return self.tokens[-1]

    @property
    def avg_log_prob(self):
        return self.log_prob / len(self.tokens)

    def __lt__(self, other):
        return self.avg_log_prob < other.avg_log_prob


class Seq2Seq(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder, self.decoder = Encoder(), Decoder()

    def greedy(self, src, max_len=10):
        encoder_outputs, hidden = self.encoder(src)
        tokens, attentions = [SOS], []
        for _ in range(max_len):
            logits, hidden, a = self.decoder(tokens[-1], hidden, encoder_outputs)
            tokens.append(logits.argmax().item())
            attentions.append(a)
            if tokens[-1] == EOS:
                break
        return tokens, torch.stack(attentions)

    def beam_search(self, src, k=3, max_len=8):
        encoder_outputs, hidden = self.encoder(src)
        beams, results, steps = [Beam([SOS], 0.0, hidden)], [], 0
        while steps < max_len and len(results) < k:
            all_beams = []
            for b in beams:
                logits, h, _ = self.decoder(b.latest_token, b.hidden, encoder_outputs)
                log_probs, ids = torch.topk(F.log_softmax(logits, dim=-1), 2 * k)
                for lp, i in zip(log_probs, ids):
                    all_beams.append(b.extend(i.item(), lp.item(), h))
            beams = []
            for b in sorted(all_beams, reverse=True):
                if b.latest_token == EOS:
                    results.append(b)
                elif len(beams) < k:
                    beams.append(b)
                if len(beams) == k or len(results) == k:
                    break
            steps += 1
        if not results:
            results = beams
        best = max(results)
        return best.tokens, best.avg_log_prob, len(results)

    def score(self, src, trg, teacher_forcing=True):
        encoder_outputs, hidden = self.encoder(src)
        token, loss, correct = SOS, 0.0, 0
        for gold in trg:
            logits, hidden, _ = self.decoder(token, hidden, encoder_outputs)
            loss = loss + F.cross_entropy(logits[None], torch.tensor([gold]))
            guess = int(torch.argmax(logits))
            correct += guess == gold
            token = gold if teacher_forcing else guess
        perplexity = math.exp(float(loss) / max(1, len(trg)))
        return loss, correct, perplexity


torch.manual_seed(1)
model = Seq2Seq().eval()


def sources(seed, lengths):
    r = random.Random(seed)
    return [[r.randrange(4, VOCAB) for _ in range(n)] for n in lengths]


def pairs(seed, lengths):
    r = random.Random(seed)
    return [(s, [r.randrange(4, VOCAB) for _ in range(r.randint(1, 5))], r.random() < 0.5) for s in sources(seed, lengths)]


PROGRAMS = [
    (dietcode.program(model.greedy), lambda: sources(0, [1, 2, 3, 5]), lambda: sources(1, [4, 7])),
    (dietcode.program(model.beam_search), lambda: sources(2, [1, 3, 4]), lambda: sources(3, [6, 2])),
    (dietcode.program(model.score), lambda: pairs(4, [1, 2, 3, 4]), lambda: pairs(5, [5, 3])),
]
