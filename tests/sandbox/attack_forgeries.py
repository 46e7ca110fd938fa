"""Hostile programs that compute a wrong answer and try to pass all the same."""

from __future__ import annotations

FORGERIES = {
    "early exit at import": "import os\nos._exit(0)\n",
    "early exit in the call": "def attack(): os._exit(0)\n",
    "system exit": "def attack(): sys.exit(0)\n",
    "exit of the interpreter with everything flushed": "def attack(): os.kill(os.getpid(), signal.SIGTERM)\n",
    "object that equals everything": """
class Any:
    def __eq__(self, other): return True
    def __ne__(self, other): return False
    def __hash__(self): return 0
    def __bool__(self): return True
def attack(): return Any()
""",
    "int that equals everything": """
class Any(int):
    def __eq__(self, other): return True
    def __ne__(self, other): return False
    def __hash__(self): return 0
    def __sub__(self, other): return 0
    def __reduce__(self): return (print, ("x",))
    def to_bytes(self, *arguments, **names): return b"N"
    def bit_length(self): return 0
def attack(): return Any(1)
""",
    "object with a false class": """
class Any:
    __class__ = property(lambda self: int)
    def __eq__(self, other): return True
def attack(): return Any()
""",
    "patched builtins": """
import builtins
for name in ("abs", "all", "any", "len", "isinstance", "sum", "max", "min", "repr", "sorted"):
    setattr(builtins, name, lambda *arguments, **names: 0)
builtins.AssertionError = type("AssertionError", (BaseException,), {})
builtins.compile = builtins.exec = lambda *arguments, **names: None
def attack(): return 0
""",
    "names that hide what tests use": """
def abs(value): return 0
def isinstance(*arguments): return True
def all(values): return True
def approximately(a, b): return True
class math:
    @staticmethod
    def fabs(value): return 0
    @staticmethod
    def isclose(*arguments, **names): return True
def candidate(): return 0
AssertionError = Exception
__builtins__ = {}
__debug = False
def attack(): return 0
""",
    "end of iteration": "def attack(*arguments): raise StopIteration\n",
    "end of a generator": "def attack(*arguments): raise GeneratorExit\n",
    "raised assertion": "def attack(): raise AssertionError\n",
    "raised exception with a false name": """
class KeyboardInterrupt(Exception): pass
def attack(): raise KeyboardInterrupt("x")
""",
    "search of the heap": """
def attack():
    for found in gc.get_objects():
        if isinstance(found, dict):
            for value in list(found.values()):
                if isinstance(value, int) and 8_000_000_000_000 < value < 9_000_000_000_000:
                    return value
        if isinstance(found, (list, tuple)):
            for value in list(found):
                if isinstance(value, str) and "assert" in value and "candidate()" in value and "8" in value:
                    return int(value.split("==")[1])
    return 0
""",
    "walk of the frames": """
def attack():
    frame = sys._getframe()
    while frame:
        for scope in (frame.f_locals, frame.f_globals):
            for value in list(scope.values()):
                if type(value) is int and 8_000_000_000_000 < value < 9_000_000_000_000:
                    return value
                if type(value) in (list, tuple, dict, str, bytes) and "candidate()" in repr(value):
                    return int(repr(value).split("==")[1][:14])
        frame = frame.f_back
    return 0
""",
    "raw memory": """
def attack():
    wanted = b"assert candidate" + b"() == "
    seen = 0
    # A child reads forward from known objects until it faults, and tells its parent what it saw.
    for start in [id(object()), id([]), id("x" * 100), id(sys), id(bytearray(1000))]:
        read, write = os.pipe()
        if os.fork() == 0:
            base = start & ~0xFFFFF
            for page in range(base, base + (1 << 24), 4096):
                text = ctypes.string_at(page, 4096)
                if wanted in text and b"8675" in text:
                    os.write(write, text[text.index(wanted):][:60])
            os._exit(0)
        os.close(write)
        os.wait()
        found = os.read(read, 60)
        if found:
            return int(found[len(wanted):].split()[0])
    return 0
""",
    "forged frames with a stolen nonce": """
def attack():
    wire = sys.modules["ratchet.sandbox.inside.wire"]
    nonces = [value for holder in gc.get_objects() if isinstance(holder, (dict, list, tuple))
              for value in (holder.values() if isinstance(holder, dict) else holder)
              if isinstance(value, bytes) and len(value) == 16]
    for nonce in [bytes(16), *nonces]:
        outcome = wire.frame(wire.encode((nonce, 0, "passed", None, None), 1 << 20))
        report = wire.frame(wire.encode({"nonce": nonce, "limit": None, "early": None, "checked": True, "cpu_s": 0.0,
                                         "wall_s": 0.0, "clean": True}, 1 << 20))
        for descriptor in [*range(0, 3), *range(5, 300)]:
            for frame in (outcome, report):
                try:
                    os.write(descriptor, frame)
                except OSError:
                    pass
    return 0
""",
    "answers written ahead": """
wire = sys.modules["ratchet.sandbox.inside.wire"]
for _ in range(20):
    os.write(4, wire.frame(wire.encode(("value", True), 4096)))
    os.write(4, wire.frame(wire.encode(("value", float("nan")), 4096)))
def attack(): return 0
""",
    "answers of a strange shape": """
wire = sys.modules["ratchet.sandbox.inside.wire"]
for answer in (("loaded", 5, 6), ("value",), ("raised", 1, 2), ("passed", 0), [], {}, None, ("loaded", [1], {2: 3})):
    os.write(4, wire.frame(wire.encode(answer, 4096)))
def attack(): return 0
""",
    "module planted for the checker": """
for folder in ("/tmp", "/dev/shm"):
    for name in ("statistics", "fractions", "json", "hashlib"):
        with open(f"{folder}/{name}.py", "w") as file:
            file.write("import os, builtins\\nbuiltins.AssertionError = StopIteration\\nos._exit(0)\\n")
        os.makedirs(f"{folder}/ratchet/sandbox/inside", exist_ok=True)
def attack(): return 0
""",
    "death of the checker, then a false result": """
def attack():
    for pid in others():
        for number in (9, 15, 11):
            try:
                os.kill(pid, number)
            except OSError:
                pass
    os._exit(0)
""",
    "deep value": "def attack():\n    value = []\n    for _ in range(99_999): value = [value]\n    return value\n",
    "huge value": "def attack(): return 'x' * (50 << 20)\n",
    "endless value": "def attack():\n    value = []\n    value.append(value)\n    return value\n",
    "shared value that explodes": """
def attack():
    value = [0] * 10
    for _ in range(12):
        value = [value] * 10
    return value
""",
    "generator instead of a value": "def attack():\n    yield 1\n",
    "hash collisions for the checker": "def attack(): return {n * ((1 << 61) - 1) for n in range(9000)}\n",
}
