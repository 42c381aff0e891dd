"""A module of SPIR-V, put together word by word: types and constants once each, and blocks with structured control flow.

Source: the SPIR-V specification, version 1.6. Integers have no sign in their types; operations say which they mean.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Hashable, Sequence

OPCODES = {
    "ExtInstImport": 11, "ExtInst": 12, "MemoryModel": 14, "EntryPoint": 15, "ExecutionMode": 16, "Capability": 17,
    "Extension": 10, "Name": 5, "ModuleProcessed": 330,
    "TypeVoid": 19, "TypeBool": 20, "TypeInt": 21, "TypeFloat": 22, "TypeVector": 23, "TypeArray": 28, "TypeRuntimeArray": 29,
    "TypeStruct": 30, "TypePointer": 32, "TypeFunction": 33, "TypeCooperativeMatrixKHR": 4456,
    "ConstantTrue": 41, "ConstantFalse": 42, "Constant": 43, "ConstantComposite": 44, "ConstantNull": 46, "Undef": 1,
    "Function": 54, "FunctionEnd": 56, "Variable": 59, "Load": 61, "Store": 62, "AccessChain": 65,
    "Decorate": 71, "MemberDecorate": 72,
    "CompositeConstruct": 80, "CompositeExtract": 81,
    "ConvertFToU": 109, "ConvertFToS": 110, "ConvertSToF": 111, "ConvertUToF": 112, "UConvert": 113, "SConvert": 114,
    "FConvert": 115, "Bitcast": 124,
    "SNegate": 126, "FNegate": 127, "IAdd": 128, "FAdd": 129, "ISub": 130, "FSub": 131, "IMul": 132, "FMul": 133,
    "UDiv": 134, "SDiv": 135, "FDiv": 136, "UMod": 137, "UMulExtended": 151,
    "IsNan": 156, "IsInf": 157, "LogicalEqual": 164, "LogicalNotEqual": 165, "LogicalOr": 166, "LogicalAnd": 167,
    "LogicalNot": 168, "Select": 169, "IEqual": 170, "INotEqual": 171, "UGreaterThan": 172, "SGreaterThan": 173,
    "UGreaterThanEqual": 174, "SGreaterThanEqual": 175, "ULessThan": 176, "SLessThan": 177, "ULessThanEqual": 178,
    "SLessThanEqual": 179, "FOrdEqual": 180, "FUnordNotEqual": 183, "FOrdLessThan": 184, "FOrdGreaterThan": 186,
    "FOrdLessThanEqual": 188, "FOrdGreaterThanEqual": 190,
    "ShiftRightLogical": 194, "ShiftRightArithmetic": 195, "ShiftLeftLogical": 196, "BitwiseOr": 197, "BitwiseXor": 198,
    "BitwiseAnd": 199, "Not": 200,
    "ControlBarrier": 224, "MemoryBarrier": 225, "AtomicStore": 228, "AtomicIAdd": 234,
    "Phi": 245, "LoopMerge": 246, "SelectionMerge": 247, "Label": 248, "Branch": 249,
    "BranchConditional": 250, "Return": 253, "GroupNonUniformAny": 335, "GroupNonUniformShuffleXor": 346,
    "CooperativeMatrixLoadKHR": 4457, "CooperativeMatrixStoreKHR": 4458, "CooperativeMatrixMulAddKHR": 4459,
    "CooperativeMatrixLengthKHR": 4460,
}  # fmt: skip
"""The instructions that kernels are made of."""

CAPABILITIES = {
    "Shader": 1, "Float16": 9, "Float64": 10, "Int64": 11, "GroupNonUniform": 61, "GroupNonUniformVote": 62,
    "GroupNonUniformShuffle": 65,
    "WorkgroupMemoryExplicitLayoutKHR": 4428, "WorkgroupMemoryExplicitLayout8BitAccessKHR": 4429,
    "WorkgroupMemoryExplicitLayout16BitAccessKHR": 4430, "StorageBuffer16BitAccess": 4433, "StorageBuffer8BitAccess": 4448,
    "SignedZeroInfNanPreserve": 4466, "RoundingModeRTE": 4467, "VulkanMemoryModel": 5345,
    "PhysicalStorageBufferAddresses": 5347, "CooperativeMatrixKHR": 6022, "Int8": 39, "Int16": 22,
}  # fmt: skip
"""What a module may need of a device."""

CLASSES = {"Input": 1, "Workgroup": 4, "Function": 7, "PushConstant": 9, "PhysicalStorageBuffer": 5349}
"""Where pointers point to."""

DECORATIONS = {
    "Block": 2,
    "ArrayStride": 6,
    "BuiltIn": 11,
    "Aliased": 20,
    "NonWritable": 24,
    "Offset": 35,
    "NoContraction": 42,
}
BUILT_IN = {"WorkgroupId": 26, "LocalInvocationId": 27, "SubgroupId": 40, "SubgroupLocalInvocationId": 41}

UNROLL, DONT_UNROLL = 1, 2
HEADER = 5
"""Words before the first instruction."""


def words(operation: str, *operands: int) -> list[int]:
    """An instruction."""
    return [(len(operands) + 1) << 16 | OPCODES[operation], *operands]


def text(string: str) -> list[int]:
    """A string as words, with the 0 that ends it."""
    data = string.encode() + b"\0"
    data += b"\0" * (-len(data) % 4)
    return list(struct.unpack(f"<{len(data) // 4}I", data))


def renamed(code: bytes, old: str, new: str) -> bytes:
    """A module whose function has another name."""
    found = list(struct.unpack(f"<{len(code) // 4}I", code))
    before, behind, at = text(old), text(new), HEADER
    while found[at] & 0xFFFF != OPCODES["Function"]:
        size, operation = found[at] >> 16, found[at] & 0xFFFF
        place = at + {OPCODES["EntryPoint"]: 3, OPCODES["Name"]: 2}.get(operation, size)
        if found[place : place + len(before)] == before and place < at + size:
            found[place : place + len(before)] = behind
            size += len(behind) - len(before)
            found[at] = size << 16 | operation
        at += size
    return struct.pack(f"<{len(found)}I", *found)


class Module:
    """A module that is being made. What is asked for twice is declared once."""

    def __init__(self) -> None:
        self.bound = 1
        self.capabilities: dict[str, None] = {"Shader": None}
        self.extensions: dict[str, None] = {}
        self.decorations: list[int] = []
        self.globals: list[int] = []
        self.interface: list[int] = []
        self.known: dict[Hashable, int] = {}
        self.functions_of_glsl = self.fresh()

    def fresh(self) -> int:
        """A number that nothing has."""
        self.bound += 1
        return self.bound - 1

    def need(self, capability: str, extension: str | None = None) -> None:
        """The device must be able to do this."""
        self.capabilities[capability] = None
        if extension is not None:
            self.extensions[extension] = None

    def declared(self, operation: str, *operands: int, type: int | None = None) -> int:
        """A type, or a constant of a type."""
        key = operation, type, *operands
        if key not in self.known:
            self.known[key] = number = self.fresh()
            head = [number] if type is None else [type, number]
            self.globals += words(operation, *head, *operands)
        return self.known[key]

    def decorate(self, target: int, decoration: str, *values: int) -> None:
        """Say something of a declaration."""
        self.decorations += words("Decorate", target, DECORATIONS[decoration], *values)

    # Types

    def void(self) -> int:
        """Nothing."""
        return self.declared("TypeVoid")

    def truth_value(self) -> int:
        """A truth value."""
        return self.declared("TypeBool")

    def integer(self, bits: int = 32) -> int:
        """An integer."""
        if bits != 32:
            self.need(f"Int{bits}")
        return self.declared("TypeInt", bits, 0)

    def real(self, bits: int = 32) -> int:
        """A floating-point number."""
        if bits != 32:
            self.need(f"Float{bits}")
        return self.declared("TypeFloat", bits)

    def vector(self, element: int, count: int) -> int:
        """Some of a type; of one, the type itself."""
        return self.declared("TypeVector", element, count) if count > 1 else element

    def pointer(self, kind: str, target: int) -> int:
        """A pointer."""
        return self.declared("TypePointer", CLASSES[kind], target)

    def array_block(self, element: int, stride: int, length: int | None = None) -> int:
        """A structure that has nothing but an array, whose length may be unknown."""
        key = "array block", element, length
        if key not in self.known:
            array = self.fresh()
            if length is None:
                self.globals += words("TypeRuntimeArray", array, element)
            else:
                self.globals += words("TypeArray", array, element, self.number(length))
            self.decorate(array, "ArrayStride", stride)
            self.known[key] = self.structure([array], [0])
        return self.known[key]

    def structure(self, members: Sequence[int], offsets: Sequence[int]) -> int:
        """A new structure that memory is seen as."""
        block = self.fresh()
        self.globals += words("TypeStruct", block, *members)
        self.decorate(block, "Block")
        for place, offset in enumerate(offsets):
            self.decorations += words("MemberDecorate", block, place, DECORATIONS["Offset"], offset)
        return block

    def cooperative(self, element: int, rows: int, columns: int, use: int) -> int:
        """A matrix that a subgroup holds: the first operand (0), the second (1), or the result (2)."""
        self.need("CooperativeMatrixKHR", "SPV_KHR_cooperative_matrix")
        return self.declared(
            "TypeCooperativeMatrixKHR",
            element,
            self.number(3),
            self.number(rows),
            self.number(columns),
            self.number(use),
        )

    # Constants and variables

    def number(self, value: int, bits: int = 32) -> int:
        """An integer of so many bits."""
        value &= (1 << bits) - 1
        parts = [value] if bits <= 32 else [value & 0xFFFFFFFF, value >> 32]
        return self.declared("Constant", *parts, type=self.integer(bits))

    def float(self, value: float, bits: int = 32) -> int:
        """A floating-point number of 32 or 64 bits."""
        parts = struct.unpack("<I" if bits == 32 else "<II", struct.pack("<f" if bits == 32 else "<d", value))
        return self.declared("Constant", *parts, type=self.real(bits))

    def truth(self, value: bool) -> int:
        """A truth value."""
        return self.declared("ConstantTrue" if value else "ConstantFalse", type=self.truth_value())

    def null(self, type: int) -> int:
        """Zeros of a type."""
        return self.declared("ConstantNull", type=type)

    def splat(self, type: int, value: int) -> int:
        """A matrix or vector of one value."""
        return self.declared("ConstantComposite", value, type=type)

    def variable(self, kind: str, target: int) -> int:
        """A variable outside functions."""
        number = self.fresh()
        self.globals += words("Variable", self.pointer(kind, target), number, CLASSES[kind])
        self.interface.append(number)
        return number

    def built_in(self, name: str, count: int = 1) -> int:
        """A variable that the device sets: integers of 32 bits."""
        key = "built in", name
        if key not in self.known:
            self.known[key] = self.variable("Input", self.vector(self.integer(), count))
            self.decorate(self.known[key], "BuiltIn", BUILT_IN[name])
        return self.known[key]

    def finished(self, name: str, threads: int, processed: str, variables: Sequence[int], body: Block) -> bytes:
        """The module, with one function that uses variables of its own; `processed` is what it says of itself."""
        main, kind = self.fresh(), self.declared("TypeFunction", self.void())
        code = [0x07230203, 0x00010600, 0, 0, 0]
        for capability in self.capabilities:
            code += words("Capability", CAPABILITIES[capability])
        for extension in self.extensions:
            code += words("Extension", *text(extension))
        code += words("ExtInstImport", self.functions_of_glsl, *text("GLSL.std.450"))
        code += words("MemoryModel", 5348, 3)
        code += words("EntryPoint", 5, main, *text(name), *self.interface)
        code += words("ExecutionMode", main, 17, threads, 1, 1)
        if "SignedZeroInfNanPreserve" in self.capabilities:
            code += words("ExecutionMode", main, 4461, 32)
        code += words("Name", main, *text(name))
        code += words("ModuleProcessed", *text(processed))
        code += [*self.decorations, *self.globals]
        code += [*words("Function", self.void(), main, 0, kind), *words("Label", body.first), *variables, *body.words]
        code += [*words("Return"), *words("FunctionEnd")]
        code[3] = self.bound
        return struct.pack(f"<{len(code)}I", *code)


class Block:
    """Instructions of a function's body, a loop's or a branch's. `first` is the label that it begins with, `label` the one of
    what is added now. `changing` says which of what varies has its values from this block. A `guard` is a block that may not
    run at all."""

    def __init__(
        self,
        module: Module,
        parent: Block | None = None,
        changing: frozenset[Hashable] = frozenset(),
        guard: bool = False,
    ) -> None:
        self.module, self.parent, self.changing, self.guard = module, parent, changing, guard
        self.words: list[int] = []
        self.first = self.label = module.fresh()

    def do(self, operation: str, *operands: int) -> None:
        """Add an instruction that gives nothing."""
        self.words += words(operation, *operands)

    def make(self, operation: str, type: int, *operands: int) -> int:
        """Add an instruction that gives something, which has the number returned."""
        number = self.module.fresh()
        self.words += words(operation, type, number, *operands)
        return number

    def is_within(self, other: Block) -> bool:
        """True if this block is another or lies in it."""
        block: Block | None = self
        while block is not None and block is not other:
            block = block.parent
        return block is other

    def enter(self, label: int) -> None:
        """Go on at a label."""
        self.words += words("Label", label)
        self.label = label

    def choose(self, condition: int, then: Block, otherwise: Block | None = None) -> None:
        """Run one of two blocks, which are complete now."""
        merge = self.module.fresh()
        self.do("SelectionMerge", merge, 0)
        self.do("BranchConditional", condition, then.first, otherwise.first if otherwise else merge)
        for block in (then, otherwise):
            if block is not None:
                self.words += [*words("Label", block.first), *block.words, *words("Branch", merge)]
        self.enter(merge)

    def repeat(
        self, index: int, count: int, body: Block, carried: Sequence[Carried] = (), control: int = DONT_UNROLL
    ) -> None:
        """Run a block, which is complete now, for each value of an index below a count. What is `carried` has a type, a number
        in the body, where it begins, and what it becomes."""
        header, test, follow, merge = (self.module.fresh() for _ in range(4))
        kind, before = self.module.integer(), self.label
        following = self.module.fresh()
        self.do("Branch", header)
        self.enter(header)
        self.do("Phi", kind, index, self.module.number(0), before, following, follow)
        for type, number, start, end in carried:
            self.do("Phi", type, number, start, before, end, follow)
        self.do("LoopMerge", merge, follow, control)
        self.do("Branch", test)
        self.enter(test)
        self.do("BranchConditional", self.make("SLessThan", self.module.truth_value(), index, count), body.first, merge)
        self.words += [*words("Label", body.first), *body.words, *words("Branch", follow)]
        self.enter(follow)
        self.do("IAdd", kind, following, index, self.module.number(1))
        self.do("Branch", header)
        self.enter(merge)


Carried = tuple[int, int, int, int]
Make = Callable[..., int]
