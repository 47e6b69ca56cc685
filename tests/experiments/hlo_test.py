"""Programs' text, in the forms that compilers write it."""

import pytest

from experiments.capacity import hlo

SIZES = {"data": 2, "fsdp": 2, "tensor": 4}  # 16 devices


@pytest.mark.parametrize(
    ("groups", "axes"),
    [
        ("{{0,8},{1,9}}", ("data",)),
        ("{}", ("data", "fsdp", "tensor")),
        ("[4,4]<=[16]", ("tensor",)),
        ("[8,2]<=[2,2,4]T(1,2,0)", ("data",)),
        ("mesh['a'=2,'b'=2,'c'=4] {'b'}", ("fsdp",)),
        ("mesh['a'=4,'b'=2,'c'=2], device_ids=([4,4]T(1,0)) {'a'}", ("tensor",)),
    ],
)
def test_axes_of_groups(groups, axes):
    shape = "((f32[8]{0:T(128)}), (f32[16]{0}, /*index=1*/bf16[8]{0}))"
    line = f"  %r.1 = {shape} all-gather-start(%p), replica_groups={groups}, to=%add"
    assert hlo.count_collectives(line, SIZES) == {("all-gather", axes): 1}


def test_permutation_is_along_every_axis_that_it_moves():
    pairs = "source_target_pairs={{0,1},{1,0},{2,10},{10,2}}, metadata={}"
    line = f"  %r.1 = f32[8]{{0}} collective-permute(%p), {pairs}"
    found = hlo.count_collectives(line, SIZES)
    assert found == {("collective-permute", ("data", "tensor")): 1}


def test_unknown_form_of_groups_is_an_error():
    with pytest.raises(ValueError, match=r"known form: .*=new"):
        hlo.count_collectives("%r = f32[8] all-reduce(%p), replica_groups=new", SIZES)


def test_products_have_the_dtype_of_their_left_side():
    text = """
      %p0 = bf16[16,8]{1,0} parameter(0)
      %p1 = f32[8,4]{1,0:T(8,128)S(1)} parameter(1)
      %sum = f32[] add(%p1, %p1)
      %gemm = (bf16[16,4]{1,0}, s8[4]{0}) custom-call(%p0, %p1), \
custom_call_target="gemm", backend_config={"lhs_contracting_dimensions":["1"]}
      ROOT %dot.1 = f32[16,4] dot(%p1, %p0), metadata={op_name="jit(step)/dot"}
    """
    assert hlo.find_products(text) == [("bfloat16", ""), ("float32", "jit(step)/dot")]
