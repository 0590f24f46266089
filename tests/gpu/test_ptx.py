"""tests/fakecuda/ptx.py: its translations, and errors for unknown input."""

import sys
from pathlib import Path

from support.cases import cases
from support.processes import Captured, captured, write_script

TRANSLATOR = Path(__file__).parents[1] / "fakecuda" / "ptx.py"
KERNEL = """.version 9.0
.target sm_90
.address_size 64
.visible .entry scale(
	.param .u32 scale_param_0,
	.param .u64 scale_param_1
)
.maxntid 256, 1, 1
.minnctapersm 4
{{
	.reg .pred %p<2>;
	.reg .b32 %r<4>;
	.reg .f32 %f<2>;
	.reg .b64 %rd<3>;
	.shared .align 8 .b8 sums[1080];
	ld.param.u64 %rd1, [scale_param_1];
	{}
	ret;
}}
"""
PTXAS = """test "$1 $2" = "-v -arch=sm_90" || exit 1
echo "ptxas info    : Compiling entry function 'scale' for 'sm_90'
ptxas info    : Function properties for scale
    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 23 registers, used 0 barriers, 1080 bytes smem" >&2"""


def translate(tmp_path: Path, *instructions: str, ptxas: tuple[str, ...] = ()) -> Captured:
    source, out = tmp_path / "scale.ptx", tmp_path / "scale.cpp"
    source.write_text(KERNEL.format("\n\t".join(instructions)))
    result = captured([sys.executable, TRANSLATOR, source, out, *ptxas], check=False)
    assert out.exists() == (result.returncode == 0)
    return result


def test_a_kernel_becomes_a_function(tmp_path: Path) -> None:
    result = translate(tmp_path, "@!%p1 ld.volatile.global.v2.u32 {%r1, %r2}, [%rd1+-8]; // a remark")
    assert result.returncode == 0, result.stderr
    lines = (tmp_path / "scale.cpp").read_text().splitlines()
    first = lines.index('#line 1 "scale.ptx"') + 1
    assert lines[first + 16] == (  # the same line as in the PTX
        "if (!_p1) { const auto v = load<Order::Volatile, u32, 2>(t.at(file, 0), u64{_rd1} + -8); "
        "_r1 = v[0]; _r2 = v[1]; }"
    )
    registers = "kOneMultiprocessor.registers / 1024 / 8 * 8"
    assert f'{{"scale", &kernel0, params0, 16, 1080, {registers}, 256}},' in lines
    assert "constexpr Kernel::Param params0[] = {{0, 4}, {8, 8}};" in lines


def test_registers_are_those_that_ptxas_allocates(tmp_path: Path) -> None:
    result = translate(tmp_path, ptxas=(write_script(tmp_path / "ptxas", PTXAS),))
    assert result.returncode == 0, result.stderr
    assert '{"scale", &kernel0, params0, 16, 1080, 23, 256},' in (tmp_path / "scale.cpp").read_text()


def test_an_error_of_ptxas_stops_the_build(tmp_path: Path) -> None:
    assert translate(tmp_path, ptxas=("/bin/false",)).returncode == 1


@cases(
    "instruction",
    "add.f32 %f1, %f1, %f1;",  # ptxas may fuse it with an earlier instruction
    "add.rn.ftz.f32 %f1, %f1, %f1;", "fma.rn.f32 %f1, %f1, %f1, %f1;", "div.approx.f32 %f1, %f1, %f1;",
    "ld.global.nc.u32 %r1, [%rd1];", "ld.volatile.u32 %r1, [%rd1];", "ld.global.u32 %r1, [elsewhere];",
    "st.param.u32 [scale_param_0], %r1;", "bar.sync 0, 64;", "bar.sync 1;", "mov.u32 %r1, %tid.y;",
    "mov.u32 %r1, %laneid;", "cvt.rzi.f32.f32 %f1, %f1;", "cvt.rn.sat.f16.f32 %r1, %f1;",
    "setp.neu.f32 %p1, %f1, %f1;", "atom.global.exch.b32 %r1, [%rd1], 1;",
    ".local .align 8 .b8 depot[16];", "call.uni function;", "add.s32 %r1, %r1, 1", "add.s32 %r1, %r1;",
    "add.s32 %r1, %r1, 1, 2;",
)  # fmt: skip
def test_what_is_not_supported_stops_the_build(tmp_path: Path, instruction: str) -> None:
    result = translate(tmp_path, instruction)
    assert result.returncode == 1
    assert result.stderr.strip().endswith(f"scale.ptx:17: PTX that is not known: {instruction}")
