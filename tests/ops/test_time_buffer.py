"""Buffers of keys and values: what is appended is there, and nothing that others see changes."""

import pytest
import torch

from fairseq_mega.ops.decoding.time_buffer import SMALLEST, TimeBuffer


def steps(*values, batch=2):
    return torch.tensor(values, dtype=torch.float32).view(1, -1, 1).repeat(batch, 1, 3)


def numbers(buffer):
    assert (buffer.steps == buffer.steps[:1, :, :1]).all()
    return buffer.steps[0, :, 0].tolist()


@pytest.mark.parametrize("most", [None, 5, 4, 3])
def test_appending(most):
    with torch.no_grad():
        buffer = TimeBuffer(steps())
        for expected in ([1], [1, 2], [1, 2, 3, 4]):
            buffer = buffer.append(steps(*expected[len(buffer) :]), most)
            assert numbers(buffer) == expected and len(buffer) == len(expected)


def test_appending_copies_nothing_while_there_is_room():
    with torch.no_grad():
        first = TimeBuffer(steps(1)).append(steps(2), 8)
        second = first.append(steps(3), 8)
        assert second.room.data_ptr() == first.room.data_ptr() and second.bytes() == 2 * 8 * 3 * 4
        grown = TimeBuffer(steps())
        places = {(grown := grown.append(steps(i))).room.data_ptr() for i in range(500)}
        assert numbers(grown) == list(range(500)) and len(places) <= 5


@pytest.mark.parametrize("most", [None, 8192])
def test_room_grows_with_the_steps(most):
    """A stream that may become long takes no more memory than twice its steps, and what is reserved is not copied."""
    with torch.no_grad():
        buffer = TimeBuffer(steps())
        for count in range(1, 1001):
            buffer = buffer.append(steps(count), most)
            assert buffer.room.size(1) <= max(SMALLEST, 2 * count)
        chosen = buffer.select(torch.tensor([1, 0, 1]))
        assert numbers(chosen) == list(range(1, 1001)) and chosen.room.size(1) == buffer.room.size(1)
        longer = chosen.append(steps(0, batch=3), most)
        assert longer.room.data_ptr() == chosen.room.data_ptr(), "a reordered buffer has room for the next step"
        assert numbers(longer) == [*range(1, 1001), 0]


def test_forks_do_not_meet():
    with torch.no_grad():
        trunk = TimeBuffer(steps(1)).append(steps(2), 8)
        left = trunk.append(steps(3), 8)
        right = trunk.append(steps(4, 5), 8)
        further = left.append(steps(6), 8)
        assert [numbers(b) for b in (trunk, left, right, further)] == [[1, 2], [1, 2, 3], [1, 2, 4, 5], [1, 2, 3, 6]]
        chosen = left.select(torch.tensor([1, 0, 1]))
        longer = chosen.append(steps(7, batch=3), 8)
        assert numbers(longer) == [1, 2, 3, 7] and numbers(further) == [1, 2, 3, 6]
        assert numbers(further.after(3)) == [6] and numbers(further.after(4)) == []


def test_gradients_flow_through_appended_steps():
    x = steps(1, 2).requires_grad_()
    buffer = TimeBuffer(x[:, :1]).append(x[:, 1:])
    buffer.steps.square().sum().backward()
    assert torch.equal(x.grad, 2 * x.detach())
    with torch.no_grad():
        half = TimeBuffer(steps(1)).append(steps(2), 8).append(steps(3).double(), 8)
    assert half.steps.dtype == torch.float64 and numbers(half) == [1, 2, 3]


def test_buffers_of_inference_mode_go_on_outside():
    with torch.inference_mode():
        buffer = TimeBuffer(steps(1)).append(steps(2), 8)
    with torch.no_grad():
        assert numbers(buffer.append(steps(3), 8)) == [1, 2, 3]
