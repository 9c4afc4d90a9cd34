"""Random beliefs in random frames, as torch has them (a stack of one) and as the independent derivation wants them."""

import numpy as np
import torch

from tests.models.gauge import independent
from unbraid.models.gauge.attention import GaugeMask
from unbraid.models.gauge.beliefs import Beliefs, fold
from unbraid.models.gauge.config import families
from unbraid.models.gauge.frames import turns

SPEC = "2x0e+1x1e+2x2e"


class Case:
    """One sequence of t tokens with full covariances."""

    def __init__(self, rng, spec=SPEC, tokens=6, spread=1.0):
        self.spec, self.heads = spec, independent.heads_of(spec)
        self.owned = independent.slices_of(self.heads)
        width = self.owned[-1].stop
        self.phi = rng.standard_normal((tokens, 3))
        self.means = spread * rng.standard_normal((tokens, width))
        self.covariances = np.zeros((tokens, width, width))
        for own in self.owned:
            root = rng.standard_normal((tokens, own.stop - own.start, own.stop - own.start))
            self.covariances[:, own, own] = root @ root.transpose(0, 2, 1) + 0.5 * np.eye(own.stop - own.start)

    @property
    def omega(self):
        return independent.transports(self.phi, self.heads)

    def mask(self, oneself=True):
        t = len(self.phi)
        allowed = torch.ones(t, t, dtype=torch.bool).tril(0 if oneself else -1)
        allowed[0, 0] = True
        added = None if oneself else torch.where(allowed, 0.0, -torch.inf)[None, None].double()
        return GaugeMask(added, allowed[None, None])

    @property
    def frames(self):
        return torch.from_numpy(self.phi)[None, None]

    def own(self):
        """By degree: means `1 1 t h e` and covariances `1 1 t h e e` in tokens' own frames."""
        for family in families(self.spec):
            at = [family.first + head * family.width for head in range(family.heads)]
            blocks = [slice(start, start + family.width) for start in at]
            means = np.stack([self.means[:, block] for block in blocks], 1)
            covariances = np.stack([self.covariances[:, block, block] for block in blocks], 1)
            yield family, torch.from_numpy(means)[None, None], torch.from_numpy(covariances)[None, None]

    def beliefs(self):
        """The same in the common frame."""
        found = []
        for family, means, covariances in self.own():
            turn = turns(self.frames, {family.degree})[family.degree]
            there = turn[:, :, :, None]
            found.append(Beliefs(means @ turn, fold(there.mT @ covariances @ there)))
        return found
