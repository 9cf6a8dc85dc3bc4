"""Strings to compare tokenizers on: natural text in many languages, code, emoji, combining marks, white space, special
tokens, random bytes (invalid ones replaced by U+FFFD) and random code points.

Only code points that this Python's Unicode data (14.0 in Python 3.11) has assigned are used. Needs nothing but the
standard library; natural text comes from this machine's translation catalogues and licences, code from its C and C++
headers and Python's own library, so the strings differ from machine to machine. Everything else depends on the seed
alone.
"""
import glob
import os
import random
import struct
import sysconfig
import unicodedata

SPECIALS = ["<|endoftext|>", "<|begin|>", "<|im_start|>", "<s>", "</s>", "<unk>", "<0x41>", "<mask>", "Trireme"]
EMOJI = ("😀😃😅🤣😊😍🥰😘🤔🙄😴🥳😎👍🏻👍🏿👩‍🚀👨‍👩‍👧‍👦🏳️‍🌈🏴‍☠️🇩🇪🇫🇷🇯🇵❤️✨🔥🎉💯🚀☕🍕🐍🦀⚙️✅❌➡️〰️©️™️1️⃣#️⃣🧑🏽‍💻🫠🫡🪿").replace("🪿", "")
SPACES = [" ", "  ", "\n", "\r\n", "\t", "\n\n", " \n ", "\u00a0", "\u2003", "\u3000", "\u200b", "\u2028", "\x0b", "\x0c", "\x85", "\u180e", "\ufeff"]
SENTENCES = [
    "The quick brown fox jumps over the lazy dog's back, isn't it? We'll see; they've gone.",
    "Zwölf Boxkämpfer jagen Viktor quer über den großen Sylter Deich – für 12.345,67 €!",
    "Voix ambiguë d'un cœur qui, au zéphyr, préfère les jattes de kiwis.",
    "Съешь же ещё этих мягких французских булок, да выпей чаю.",
    "いろはにほへと ちりぬるを わかよたれそ つねならむ。東京都で会いましょう！",
    "天地玄黃，宇宙洪荒。日月盈昃，辰宿列張。3.14159265",
    "키스의 고유조건은 입술끼리 만나야 하고 특별한 기술은 필요치 않다.",
    "صِف خَلقَ خَودِ كَمِثلِ الشَمسِ إِذ بَزَغَت",
    "עטלף אבק נס דרך מזגן שהתפוצץ כי חם",
    "ऋषियों को सताने वाले दुष्ट राक्षसों के राजा रावण का सर्वनाश",
    "เป็นมนุษย์สุดประเสริฐเลิศคุณค่า กว่าบรรดาฝูงสัตว์เดรัจฉาน",
    "Pijamalı hasta yağız şoföre çabucak güvendi. İSTANBUL'DA",
    "Ταχίστη αλώπηξ βαφής ψημένη γη, δρασκελίζει υπέρ νωθρού κυνός",
    "Chữ Việt có nhiều dấu: ắ ằ ẳ ẵ ặ, ế ề ể ễ ệ.",
    "ﬁne ﬂuﬀy ligatures, Ⅻ, ½, ²³, ㎏, ｆｕｌｌ ｗｉｄｔｈ, ﾊﾝｶｸ",
    "e\u0301 a\u0308 o\u0302\u0323 n\u0303 \u1100\u1161\u11a8 s\u0323\u0307 q\u0307\u0323",
    "I'LL 'VE 'Re 'ſ IT'S don't DON'T y'all'd've",
    "x=1;y+=2;/* c */ for(int i=0;i<10;++i){a[i]->b::c(\"%d\\n\");}",
    "    def f(self, *args, **kwargs) -> None:\n        return {k: v for k, v in kwargs.items()}\n\n\n",
    "https://example.org/a/b?c=d&e=%20#f user@example.org C:\\dir\\file.txt 192.168.0.1",
]


def assigned():
    """Every assigned code point but surrogates and private use."""
    return [chr(c) for c in range(0x110000) if unicodedata.category(chr(c)) not in ("Cn", "Cs", "Co")]


def catalogues(limit):
    """Messages of the machine's translation catalogues, of as many languages as there are."""
    messages, paths = [], sorted(glob.glob("/usr/share/locale/*/LC_MESSAGES/*.mo"), key=lambda p: hash_of(p))
    for path in paths[:limit]:
        with open(path, "rb") as file:
            data = file.read()
        if len(data) < 28 or struct.unpack_from("<I", data)[0] != 0x950412DE:
            continue
        count, _, translated = struct.unpack_from("<III", data, 8)
        for i in range(1, count):
            length, offset = struct.unpack_from("<II", data, translated + 8 * i)
            try:
                messages.append(data[offset:offset + length].decode("utf-8").replace("\0", "\n"))
            except UnicodeDecodeError:
                pass
    return messages


def hash_of(text):
    value = 0
    for byte in text.encode():
        value = (value * 1000003 + byte) & 0xFFFFFFFF
    return value


def source_lines(limit):
    folders = ["/usr/include", sysconfig.get_paths()["stdlib"], "/usr/share/common-licenses"]
    paths = [p for f in folders for p in sorted(glob.glob(os.path.join(f, "*"))) + sorted(glob.glob(os.path.join(f, "*", "*")))
             if p.endswith((".h", ".py", "GPL-3", "GFDL-1.3", "Apache-2.0", "Artistic"))]
    lines = []
    for path in sorted(paths, key=hash_of)[:limit]:
        with open(path, "rb") as file:
            text = file.read().decode("utf-8", errors="replace")
        lines.append(text[:20000])
    return lines


def known_only(text, allowed):
    return "".join(c if c in allowed else "\ufffd" for c in text)


def make(count, seed=1):
    """`count` strings. The first ones are SENTENCES, pieces of them and the edge cases."""
    rng = random.Random(seed)
    alphabet = assigned()
    allowed = set(alphabet)
    marks = [c for c in alphabet if unicodedata.category(c).startswith("M")]
    hangul = [chr(c) for c in range(0x1100, 0x1200)] + [chr(c) for c in range(0xAC00, 0xD7A4, 7)]
    natural = catalogues(600) or SENTENCES
    code = source_lines(300) or SENTENCES
    strings = ["", " ", "  ", "   a", "a ", " a", "\n", "a\n", "\na", "a\nb", "a \n b", "▁", "▁▁a", "a▁b", "\0", "a\0b", "\ufffd"]
    strings += SENTENCES + SPACES + SPECIALS + [f"a {s} b" for s in SPECIALS] + [f"a{s}b" for s in SPECIALS]
    strings += [" ".join(SENTENCES), "\n".join(SENTENCES), "a" * 1000, " " * 300, "ab" * 500, "é" * 200, "\n" * 100, "0" * 100]

    def piece(text, most):
        begin = rng.randrange(max(1, len(text)))
        return text[begin:begin + rng.randint(1, most)]

    def random_words(source, most):
        return "".join(rng.choice(source) + rng.choice(["", "", " ", "'", "\n"]) for _ in range(rng.randint(1, most)))

    emoji = list(EMOJI)
    while len(strings) < count:
        kind = rng.randrange(10)
        if kind <= 2:
            text = piece(rng.choice(natural), 300)
        elif kind <= 4:
            text = piece(rng.choice(code), 400)
        elif kind == 5:
            text = "".join(rng.choice(emoji) + rng.choice(["", " ", "a"]) for _ in range(rng.randint(1, 20)))
        elif kind == 6:
            text = "".join(rng.choice("aeiouncsqAEIOU가각ᄀあगক") + "".join(rng.choice(marks) for _ in range(rng.randint(0, 4)))
                           + rng.choice(["", "", " ", rng.choice(hangul)]) for _ in range(rng.randint(1, 20)))
        elif kind == 7:
            text = bytes(rng.randrange(256) for _ in range(rng.randint(1, 60))).decode("utf-8", errors="replace")
            if rng.random() < 0.3:
                broken = bytearray(rng.choice(SENTENCES).encode())
                for _ in range(rng.randint(1, 5)):
                    broken[rng.randrange(len(broken))] = rng.randrange(256)
                text = broken.decode("utf-8", errors="replace")
        elif kind == 8:
            text = random_words(alphabet, 30)
        else:
            parts = []
            for _ in range(rng.randint(1, 8)):
                parts.append(rng.choice([piece(rng.choice(SENTENCES), 30), rng.choice(SPACES), rng.choice(SPECIALS),
                                         str(rng.randrange(10 ** rng.randint(1, 9))), rng.choice(emoji)]))
            text = "".join(parts)
        strings.append(known_only(text, allowed))
    return strings[:count]
