"""``python -m spark_kafka_sink.record.kernels.compiler FOLDER PLATFORM=TRIPLE=PROCESSOR …``.

Compile all kernels into one object file for each platform, FOLDER/PLATFORM.o. No other module
imports numba. ``build`` starts this command in an environment that is the same on each machine.

numba translates each kernel into LLVM code. The code gets the kernel's own name and is compiled
with all other kernels into one object file. The file contains plain functions of int64, which need
only C's memmove. A kernel that can raise an exception would need Python, and is rejected here.

Source: ``numba.core.ccallback`` for C's calling convention.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

import llvmlite
import llvmlite.binding as llvm
import numba
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic
from numba.np.arrayobj import make_array, populate_array

from spark_kafka_sink.record.compiled import calls
from spark_kafka_sink.record.kernels import memory
from spark_kafka_sink.record.kernels.memory import HELPERS, KERNELS
from spark_kafka_sink.record.kernels.sources import COMPILER, symbol

ALLOWED_EXTERNALS = frozenset(["memcpy", "memmove", "memset"])
"""The C functions that machine code may call."""
_WITHOUT_KERNELS = frozenset(["__init__", "build", "compiler", "sources"])
_OPTIMISATION = 3
_MARK = "define i64 @{name}() {{ ret i64 0 }}"


def kernel_modules() -> list[ModuleType]:
    """Import all modules of this folder that may declare kernels or helpers, sorted by name."""
    names = {path.stem for path in Path(__file__).parent.glob("*.py")} - _WITHOUT_KERNELS
    return [import_module(f"{__package__}.{name}") for name in sorted(names)]


MODULES = kernel_modules()


def compiled_kernels() -> dict[str, str]:
    """Return the LLVM code of each kernel by name, which is not specific to a platform yet."""
    compile_helpers()
    codes = {}
    for name, source in KERNELS.items():
        started = time.monotonic()
        codes[name] = _code_of(name, source)
        took = time.monotonic() - started
        print(f"  {len(codes):2} of {len(KERNELS)}  {name}, {took:.1f} s", flush=True)
    return codes


def object_code(codes: dict[str, str], triple: str, processor: str) -> bytes:
    """Return the object file with all kernels.

    codes: the result of ``compiled_kernels``
    triple, processor: LLVM's names of the platform and of its oldest processor
    """
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    target = llvm.Target.from_triple(triple).create_target_machine(
        cpu=processor, features="", opt=_OPTIMISATION, reloc="pic", codemodel="default"
    )
    whole = _parse(_MARK.format(name=symbol()), triple, target)
    for name, code in codes.items():
        whole.link_in(_module_of(name, code, triple, target))
    _optimise(whole, target)
    _reject_externals(whole)
    return bytes(target.emit_object(whole))


def compile_helpers() -> None:
    """Replace helpers in the modules of kernels by versions that numba can compile."""
    compiled: dict[Any, Any] = dict(_INTRINSICS)
    for source, is_inlined in HELPERS.items():
        options = {"inline": "always"} if is_inlined else {}
        # A division by zero does not raise, as in C.
        compiled[source] = numba.njit(nogil=True, error_model="numpy", **options)(source)
    for module in MODULES:
        _replace(module, compiled)


def _replace(module: ModuleType, compiled: dict[Any, Any]) -> None:
    for name, value in list(vars(module).items()):
        if callable(value) and value.__hash__ is not None and value in compiled:
            setattr(module, name, compiled[value])


def _code_of(name: str, source: Callable[..., int]) -> str:
    """Return the LLVM code of a kernel under its own name."""
    parameters_count = source.__code__.co_argcount
    signature = types.int64(*[types.int64] * parameters_count)
    callback = numba.cfunc(signature, nopython=True, error_model="numpy")(source)
    mangled = callback._wrapper_name
    return str(callback._library._final_module).replace(f"@{mangled}(", f"@{name}(")


def _module_of(name: str, code: str, triple: str, target: Any) -> Any:
    """Return the LLVM module with the kernel; everything else in the module is private."""
    module = _parse(code, triple, target)
    for function in module.functions:
        if not function.is_declaration and function.name != name:
            function.linkage = "internal"
    for variable in module.global_variables:
        if not variable.is_declaration:
            variable.linkage = "internal"
    return module


def _parse(code: str, triple: str, target: Any) -> Any:
    module = llvm.parse_assembly(code)
    module.triple = triple
    module.data_layout = str(target.target_data)
    return module


def _optimise(module: Any, target: Any) -> None:
    options = llvm.create_pipeline_tuning_options(speed_level=_OPTIMISATION)
    options.loop_vectorization = True
    options.slp_vectorization = True
    builder = llvm.create_pass_builder(target, options)
    builder.getModulePassManager().run(module, builder)


def _reject_externals(module: Any) -> None:
    needed = {
        function.name
        for function in module.functions
        if function.is_declaration and not function.name.startswith("llvm.")
    }
    if needed - ALLOWED_EXTERNALS:
        raise RuntimeError(f"kernels would need {sorted(needed - ALLOWED_EXTERNALS)}")


# --- memory --------------------------------------------------------------------------------------


def _loader(result: Any) -> Any:
    @intrinsic
    def load(typing_context: Any, address: Any) -> Any:
        signature = result(types.int64)

        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            pointer_type = context.get_value_type(result).as_pointer()
            return builder.load(builder.inttoptr(arguments[0], pointer_type), align=1)

        return signature, generate

    return load


@intrinsic
def _multiply_wide(typing_context: Any, left: Any, right: Any) -> Any:
    signature = types.UniTuple(types.uint64, 2)(types.uint64, types.uint64)

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        word, wide = ir.IntType(64), ir.IntType(128)
        left, right = (builder.zext(argument, wide) for argument in arguments)
        product = builder.mul(left, right)
        low = builder.trunc(product, word)
        high = builder.trunc(builder.lshr(product, wide(64)), word)
        return context.make_tuple(builder, signature.return_type, (low, high))

    return signature, generate


def _float_storer(kind: Any) -> Any:
    @intrinsic
    def store(typing_context: Any, address: Any, value: Any) -> Any:
        signature = types.void(types.int64, kind)

        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            pointer = context.get_value_type(kind).as_pointer()
            builder.store(arguments[1], builder.inttoptr(arguments[0], pointer), align=1)
            return context.get_dummy_value()

        return signature, generate

    return store


def _storer(bits: int) -> Any:
    @intrinsic
    def store(typing_context: Any, address: Any, value: Any) -> Any:
        signature = types.void(types.int64, types.int64)

        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            address, value = arguments
            stored = ir.IntType(bits)
            pointer = builder.inttoptr(address, stored.as_pointer())
            builder.store(builder.trunc(value, stored) if bits < 64 else value, pointer, align=1)
            return context.get_dummy_value()

        return signature, generate

    return store


@intrinsic
def _leading_zeros(typing_context: Any, value: Any) -> Any:
    signature = types.int64(types.uint64)

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.ctlz(arguments[0], ir.IntType(1)(0))

    return signature, generate


@intrinsic
def _copy_bytes(typing_context: Any, destination: Any, source: Any, count: Any) -> Any:
    signature = types.void(types.int64, types.int64, types.int64)

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        destination, source, count = arguments
        pointer = ir.IntType(8).as_pointer()
        # memcpy is slower: a library that requires no version of memcpy gets glibc's oldest, which
        # uses none of the processor's wide instructions.
        cgutils.raw_memmove(
            builder,
            builder.inttoptr(destination, pointer),
            builder.inttoptr(source, pointer),
            count,
            1,
        )
        return context.get_dummy_value()

    return signature, generate


def _array_at(element: Any) -> Any:
    @intrinsic
    def array(typing_context: Any, address: Any, count: Any) -> Any:
        array_type = types.Array(element, 1, "C")
        signature = array_type(types.int64, types.int64)

        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            return _create_array(context, builder, array_type, arguments[0], [arguments[1]])

        return signature, generate

    return array


@intrinsic
def _int64_table(typing_context: Any, address: Any, rows_count: Any, columns_count: Any) -> Any:
    array_type = types.Array(types.int64, 2, "C")
    signature = array_type(types.int64, types.int64, types.int64)

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return _create_array(context, builder, array_type, arguments[0], list(arguments[1:]))

    return signature, generate


def _create_array(
    context: Any, builder: Any, array_type: Any, address: Any, shape: list[Any]
) -> Any:
    """Return an array of memory without reference counting."""
    array = make_array(array_type)(context, builder)
    item_bytes = context.get_abi_sizeof(context.get_data_type(array_type.dtype))
    strides = [context.get_constant(types.intp, item_bytes)]
    for count in reversed(shape[1:]):
        strides.insert(0, builder.mul(strides[0], count))
    populate_array(
        array,
        data=builder.inttoptr(address, context.get_data_type(array_type.dtype).as_pointer()),
        shape=cgutils.pack_array(builder, shape),
        strides=cgutils.pack_array(builder, strides),
        itemsize=context.get_constant(types.intp, item_bytes),
        meminfo=None,
    )
    return array._getvalue()


_INTRINSICS: dict[Callable[..., Any], Any] = {
    memory.load_uint8: _loader(types.uint8),
    memory.load_int32: _loader(types.int32),
    memory.load_uint32: _loader(types.uint32),
    memory.load_int64: _loader(types.int64),
    memory.load_uint64: _loader(types.uint64),
    memory.multiply_wide: _multiply_wide,
    memory.load_int8: _loader(types.int8),
    memory.load_int16: _loader(types.int16),
    memory.leading_zeros: _leading_zeros,
    memory.load_float32: _loader(types.float32),
    memory.store_float32: _float_storer(types.float32),
    memory.store_float64: _float_storer(types.float64),
    memory.store_uint8: _storer(8),
    memory.store_uint16: _storer(16),
    memory.store_uint32: _storer(32),
    memory.store_uint64: _storer(64),
    memory.copy_bytes: _copy_bytes,
    memory.int32_array: _array_at(types.int32),
    memory.int64_array: _array_at(types.int64),
    memory.uint64_array: _array_at(types.uint64),
    memory.int64_table: _int64_table,
}


# --- command line --------------------------------------------------------------------------------


def _check_declarations() -> None:
    """Raise RuntimeError for another compiler, or if calls.py declares other kernels."""
    found = (f"numba=={numba.__version__}", f"llvmlite=={llvmlite.__version__}")
    if found != COMPILER:
        raise RuntimeError(f"install {' '.join(COMPILER)}: this is {' '.join(found)}")
    sources = {name: source.__code__.co_argcount for name, source in KERNELS.items()}
    named = {name: kernel.parameters_count for name, kernel in calls.KERNELS.items()}
    if sources != named:
        different = sorted(name for name, _ in sources.items() ^ named.items())
        raise RuntimeError(f"record/compiled/calls.py declares these otherwise: {different}")


def main(arguments: list[str]) -> None:
    """Write the object files."""
    _check_declarations()
    codes = compiled_kernels()
    for one in arguments[1:]:
        platform, triple, processor = one.split("=")
        code = object_code(codes, triple, processor)
        Path(arguments[0], f"{platform}.o").write_bytes(code)
        print(f"  {platform}, processor {processor}", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
