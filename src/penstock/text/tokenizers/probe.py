"""Texts on which tokenizers tend to disagree.

The fast backend is compared with the reference on all of them each time a tokenizer is chosen.
"""

from typing import Final

_SPACES: Final = " \t\n\r\x0b\x0c\x1c\x85\xa0\u1680\u180e\u2000\u2003\u200a\u200b\u2028\u2029\u202f\u205f\u3000\ufeff"

PROBES: Final = (
    "",
    " ",
    "\n",
    "Hello world, it's 2026; they'll've gone, WE'RE not'S done.",
    "def f(x):\n    return {'a': [1, 22, 333, 4444, 55555]}  # comment\n\n\n\tend\t \n",
    "   leading and trailing   ",
    "a\r\nb\rc\n\r\nd",
    "<|endoftext|> is text <|im_start|>here</s> [SEP]",
    "x" * 300 + " " * 300 + "\n" * 50 + "=" * 200 + "ab" * 100,
    "héllo wörld e\u0301 \u00c5\u212b ﬁ Ǆ ß ẞ İı Σσς",
    "日本語のテキスト、한국어 텍스트。ภาษาไทย हिन्दी العربية עברית",
    "👩‍👩‍👧‍👦🏳️‍🌈 flags 🇫🇷🇩🇪 skin 👍🏽 keycap 1️⃣",
    "٠١٢٣ ½ ² Ⅷ ① 𝟘𝟙 ৴",
    "".join(f"a{space}b{space}{space}c" for space in _SPACES),
    "\x00\x01\x02\x1b\x7f\x80\x9f\ufffd\uffff\U0001ffff\U0010fffd",
    "".join(map(chr, range(1, 0x250))),
    " ".join(map(chr, range(0x2000, 0x2070))),
    "".join(chr(point) for point in range(0x1F300, 0x1F700, 7)),
    "".join(chr(point) for point in range(0x300, 0x3000, 31)),
    "don't 'tis ''s 'T 'LL 'Ve l'été aujourd’hui",
    "https://example.org/a?b=c&d=%20#e user@host.tld C:\\path\\file ~/x/y.z $HOME @decorator #!shebang",
)
