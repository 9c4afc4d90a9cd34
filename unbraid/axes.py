"""The letters that name array axes everywhere in this house.

    m  member of a stack        b  sample of a batch       d  input dimension
    f  learned feature          n  planted (true) feature  k  slot for something that fired
    s  seed, or site            c  check while training    r  place in a feature's list of other features
    t  token of a sequence      q  question of a story     o  target dimension (d in an autoencoder)

Among stories and transformers (`worlds/stories`, `models`) some letters mean other things:

    b  story of a batch         t  token, or query         s  key
    h  head                     e  dimension in a head     d  dimension of the residual stream
    q  question of a story      c  class of answers        v  word of the vocabulary
    i  iteration                n  expert, or memory       p  number among all weights of a model

Shapes are written with these letters in annotations, for example `Float[Tensor, "m f d"]`; the tests check them
at run time. The member axis always comes first, the feature axis second.
"""

from jaxtyping import Bool, Float, Int
from torch import Tensor

__all__ = ["Bool", "Float", "Int", "Tensor"]
