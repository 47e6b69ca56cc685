"""Programs' text, in the forms that compilers write it."""

import pytest

from experiments.capacity import hlo

SIZES = {"data": 2, "fsdp": 2, "tensor": 4}  # 16 devices


def collective(line: str) -> hlo.Collective:
    text = f"ENTRY %main (p: f32[8]) -> f32[8] {{\n  {line}\n}}\n"
    (found,) = hlo.collectives(hlo.Program(text), SIZES)
    return found


@pytest.mark.parametrize(
    ("groups", "axes", "devices"),
    [
        ("{{0,8},{1,9}}", ("data",), 2),
        ("{}", ("data", "fsdp", "tensor"), 16),
        ("[4,4]<=[16]", ("tensor",), 4),
        ("[8,2]<=[2,2,4]T(1,2,0)", ("data",), 2),
        ("mesh['a'=2,'b'=2,'c'=4] {'b'}", ("fsdp",), 2),
        ("mesh['a'=4,'b'=2,'c'=2], device_ids=([4,4]T(1,0)) {'a'}", ("tensor",), 4),
    ],
)
def test_axes_of_groups(groups, axes, devices):
    end = "use_global_device_ids=true, to_apply=%add"
    found = collective(
        f"%r.1 = f32[8]{{0}} all-reduce(%p), replica_groups={groups}, {end}"
    )
    assert (found.kind, found.axes, found.devices) == ("all-reduce", axes, devices)
    assert found.sent == 2 * (devices - 1) / devices * 32


def test_permutation_is_along_every_axis_that_it_moves():
    pairs = "source_target_pairs={{0,1},{1,0},{2,10},{10,2}}, metadata={}"
    found = collective(f"%r.1 = f32[8]{{0}} collective-permute(%p), {pairs}")
    assert found.axes == ("data", "tensor") and found.sent == 32


@pytest.mark.parametrize(
    ("shape", "given", "bytes_"),
    [
        ("(f32[8]{0:T(128)S(1)}, f32[16]{0:T(128)})", "%p", 64),
        ("(u32[1,64]{1,0}, u32[2,64]{1,0}, u32[]{:S(2)}, u32[]{:S(2)})", "%p", 512),
        (
            "((f32[8]{0}, bf16[4]{0}), (f32[16]{0}, /*index=1*/bf16[8]{0}))",
            "%p, %q",
            80,
        ),
    ],
)
def test_started_collective_counts_its_results(shape, given, bytes_):
    line = f"%s = {shape} all-gather-start({given}), replica_groups=[4,4]<=[16], x={{}}"
    assert collective(line).bytes == bytes_


LOOP = """%body (b: (s32[], f32[8])) -> (s32[], f32[8]) {{
  %x = f32[8]{{0}} parameter(0)
  %dot.1 = f32[8]{{0}} dot(%x, %x), lhs_contracting_dims={{0}}, \
backend_config={{"estimated_cycles":"7"}}
}}

%inside (i: s32[]) -> pred[] {{
  %i = s32[] parameter(0)
  %limit.2 = s32[] constant(5)
  ROOT %less.2 = pred[] compare(%i, %limit.2), direction=LT
}}

%condition (c: (s32[], f32[8])) -> pred[] {{
  %c = (s32[], f32[8]{{0}}) parameter(0)
  %g = s32[] get-tuple-element(%c), index=0
  {condition}
}}

ENTRY %main (p: (s32[], f32[8])) -> (s32[], f32[8]) {{
  %p = (s32[], f32[8]{{0}}) parameter(0)
  ROOT %while.1 = (s32[], f32[8]{{0}}) while(%p), condition=%condition, body=%body{end}
}}
"""
LIMIT = "%limit = s32[]{:T(128)} constant(24)\n  ROOT %less = pred[] compare"


@pytest.mark.parametrize(
    ("condition", "end", "times"),
    [
        (f"{LIMIT}(%g, %limit), direction=LT", "", 24),
        ("ROOT %f = pred[] fusion(%g), kind=kLoop, calls=%inside", "", 5),
        ("", ', backend_config={"known_trip_count":{"n":"3"}}', 3),
        (f"{LIMIT}(%g, %limit), direction=NE", "", None),
    ],
)
def test_how_often_a_loop_runs(condition, end, times):
    program = hlo.Program(LOOP.format(condition=condition, end=end))
    (product,) = hlo.products(program)
    assert (product.dtype, product.times) == ("float32", times or 1)
    assert hlo.cycles(program) == 7 * (times or 1)
    assert program.unknown_loops == (set() if times else {"while.1"})


def test_branch_is_read():
    text = LOOP.format(condition="", end="").replace(
        "while(%p), condition=%condition, body=%body",
        "conditional(%p), branch_computations={%body, %condition}",
    )
    assert len(hlo.products(hlo.Program(text))) == 1
