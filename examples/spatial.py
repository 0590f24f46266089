"""Train on an image that no rank holds: each has a tile, and convolutions get the neighbours' edges.

    mpi-gdr run -n 2 spatial.py     mpirun -n 4 python spatial.py     torchrun --nproc-per-node 4 spatial.py
    python spatial.py               one rank that holds the whole image: the same losses

Spatial parallelism as in Hy-Fi, for activations that exceed one device. Before each convolution a rank
exchanges halos with its neighbours by batch_isend_irecv: above and below, then left and right with the
corners. The backward pass returns the halos' gradients. The network finds nuclei in synthetic tissue.

First, output and gradients are compared with one process's, in float64; --no-check skips that for images that
are too large. Writes spatial.png: an image, the result, the errors without halos.
"""

import argparse
import math
import sys

import common
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor, nn

CELL = 16  # pixels per side; each cell of the tissue holds a disc or a ring

parser = common.parser(__doc__, __file__)
parser.add_argument("--size", type=int, default=256, help="pixels of a side of the image")
parser.add_argument("--check", action=argparse.BooleanOptionalAction, default=True)
parser.add_argument("--iterations", type=int, default=80)
parser.add_argument("--channels", type=int, default=16)


def exchange(edges: list[Tensor], neighbours: list[int | None]) -> list[Tensor]:
    """Sends each neighbour an edge and returns theirs; zeros without a neighbour."""
    edges = [edge.contiguous() for edge in edges]
    arrived = [torch.zeros_like(edge) for edge in edges]
    operations = []
    for edge, halo, rank in zip(edges, arrived, neighbours, strict=True):
        if rank is not None:
            operations += [dist.P2POp(dist.isend, edge, rank), dist.P2POp(dist.irecv, halo, rank)]
    for work in dist.batch_isend_irecv(operations) if operations else []:
        work.wait()
    return arrived


class Halo(torch.autograd.Function):
    """Extends x along a dimension by `width` lines of each neighbour."""

    @staticmethod
    def forward(ctx, x: Tensor, dim: int, width: int, neighbours: list[int | None]) -> Tensor:
        ctx.setting = dim, width, neighbours
        low, high = exchange([x.narrow(dim, 0, width), x.narrow(dim, -width, width)], neighbours)
        return torch.cat([low, x, high], dim)

    @staticmethod
    def backward(ctx, gradient: Tensor) -> tuple:
        """Sends each halo's gradient back and adds it to that of the edge."""
        dim, width, neighbours = ctx.setting
        halos = [gradient.narrow(dim, 0, width), gradient.narrow(dim, -width, width)]
        low, high = exchange(halos, neighbours)
        inner = gradient.narrow(dim, width, gradient.shape[dim] - 2 * width).clone()
        inner.narrow(dim, 0, width).add_(low)
        inner.narrow(dim, -width, width).add_(high)
        return inner, None, None, None


class TiledConv2d(nn.Conv2d):
    """Conv2d with a 3 x 3 kernel on this rank's tile."""

    def forward(self, x: Tensor) -> Tensor:
        for dim, neighbours in ((2, above_below), (3, left_right)):
            x = Halo.apply(x, dim, self.dilation[0], neighbours)
        return F.conv2d(x, self.weight, self.bias, self.stride, 0, self.dilation)


def network(conv: type[nn.Conv2d]) -> nn.Sequential:
    few, many = args.channels, 2 * args.channels
    return nn.Sequential(
        conv(1, few, 3, padding=1), nn.GELU(),
        conv(few, many, 3, stride=2, padding=1), nn.GELU(),
        conv(many, many, 3, dilation=2, padding=2), nn.GELU(),
        conv(many, many, 3, dilation=4, padding=4), nn.GELU(), nn.Upsample(scale_factor=2),
        conv(many, few, 3, padding=1), nn.GELU(),
        conv(few, 1, 3, padding=1),
    ).to(ranks.device)  # fmt: skip


def tissue(number: int, rows: slice, columns: slice) -> tuple[Tensor, Tensor]:
    """A part of an image, (1, 1, H, W), and a mask of its nuclei: discs, but not rings and fibres."""
    shape, pixels = [4] + 2 * [args.size // CELL + 1], torch.arange(args.size)
    cells = torch.rand(shape, generator=torch.Generator().manual_seed(number), dtype=torch.float64)
    y, x = torch.meshgrid(pixels[rows], pixels[columns], indexing="ij")
    down, right, radius, kind = cells[:, y // CELL, x // CELL]
    distance = torch.hypot(y % CELL - 5 - 6 * down, x % CELL - 5 - 6 * right) / (2 + 3 * radius)
    nuclei, rings = (distance < 1) & (kind < 0.6), (distance < 1) & (distance > 0.6) & (kind >= 0.6)
    image = (nuclei | rings) + torch.sin(x.double() / 4 + 3 * torch.sin(y.double() / 20))
    return image[None, None].to(ranks.device), nuclei[None, None].double().to(ranks.device)


def backward(model: nn.Module, image: Tensor, nuclei: Tensor, together: bool) -> tuple[Tensor, Tensor]:
    """Returns output and loss, a mean over the whole image. `together`: sums loss and gradients of tiles."""
    output = model(image)
    loss = F.binary_cross_entropy_with_logits(output, nuclei, reduction="sum") / args.size**2
    loss.backward()
    if together:
        for tensor in (loss.data, *(p.grad for p in model.parameters())):
            dist.all_reduce(tensor)
    return output.detach(), loss.detach()


def difference_to_one_process() -> float:
    """Largest difference of output and gradients on all ranks, in float64, relative to the largest value."""
    whole, mine = network(nn.Conv2d).double(), network(TiledConv2d).double()
    mine.load_state_dict(whole.state_dict())
    expected, _ = backward(whole, *tissue(0, slice(None), slice(None)), together=False)
    actual, _ = backward(mine, *tissue(0, *tile), together=True)
    pairs = [(actual, expected[..., tile[0], tile[1]])]
    pairs += [(p.grad, q.grad) for p, q in zip(mine.parameters(), whole.parameters(), strict=True)]
    largest = torch.stack([(a - b).abs().max() / b.abs().max() for a, b in pairs]).max()
    dist.all_reduce(largest, dist.ReduceOp.MAX)
    return largest.item()


def whole_image(part: Tensor) -> Tensor:
    tiles = ranks.gather(part[0, 0].contiguous())
    return torch.cat([torch.cat(tiles[i : i + columns], dim=1) for i in range(0, ranks.size, columns)])


args = parser.parse_args()
ranks = common.begin(args)
rows = max(d for d in range(1, math.isqrt(ranks.size) + 1) if ranks.size % d == 0)
columns = ranks.size // rows
height, width = args.size // rows, args.size // columns
if args.size != height * rows or args.size != width * columns or height % 2 or width % 2 or width < 8:
    sys.exit(f"spatial.py: --size {args.size}: expected {rows} x {columns} tiles of even sides, 8 or more")
row, column = divmod(ranks.rank, columns)
above_below = [ranks.rank - columns if row else None, ranks.rank + columns if row < rows - 1 else None]
left_right = [ranks.rank - 1 if column else None, ranks.rank + 1 if column < columns - 1 else None]
tile = slice(row * height, (row + 1) * height), slice(column * width, (column + 1) * width)

torch.manual_seed(1337)
difference = difference_to_one_process() if args.check else None
torch.manual_seed(1337)
model = network(TiledConv2d)
optimizer = torch.optim.Adam(model.parameters(), 3e-3)
losses = []
with common.Progress(ranks, args.iterations) as progress:
    progress.line(f"{rows} x {columns} tiles of {height} x {width} pixels")
    if args.check:
        progress.line(f"output and gradients differ from one process's by {difference:.1e} (float64)")
    for iteration in range(args.iterations):
        image, nuclei = tissue(iteration + 1, *tile)
        loss = backward(model, image.float(), nuclei.float(), together=True)[1]
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
        progress.step(f"loss {losses[-1]:.4f}")

with torch.no_grad():
    image, nuclei = (part.float() for part in tissue(0, *tile))
    apart = network(nn.Conv2d)
    apart.load_state_dict(model.state_dict())
    found, wrong = model(image).sigmoid(), apart(image).sigmoid()
    panels = {"image": image, "nuclei found": found, "error without halos": (wrong - found).abs()}
    panels = {title: whole_image(panel) for title, panel in panels.items()}


def draw(axes) -> None:
    for chart, (title, panel) in zip(axes, panels.items(), strict=True):
        chart.imshow(panel, cmap="magma")
        chart.set(title=title, xticks=[], yticks=[])
        seams = {"color": "white", "linestyle": ":", "linewidth": 1}
        chart.hlines([i * height - 0.5 for i in range(1, rows)], 0, args.size - 1, **seams)
        chart.vlines([i * width - 0.5 for i in range(1, columns)], 0, args.size - 1, **seams)


common.picture(args, ranks, "spatial.png", draw, ncols=3, figsize=(13, 4.6))
error = panels["error without halos"].max().item()
common.end(args, ranks, loss=losses[-1], difference=difference, error_without_halos=error, losses=losses)
