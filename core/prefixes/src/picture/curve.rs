//! Places on the Hilbert curve.

/// The bits of a cell's number.
pub(super) const CELL_BITS: u32 = 18;
/// The cells on a side of the picture.
pub(super) const SIDE: u32 = 1 << (CELL_BITS / 2);

/// The square of the cells that share the first `bits` bits (an even number) with a cell: left, top and side, in cells.
pub(super) fn square(cell: u32, bits: u32) -> (u32, u32, u32) {
    let side = 1 << ((CELL_BITS - bits) / 2);
    let (x, y) = place(cell);
    (x / side * side, y / side * side, side)
}

/// Where a cell is: its column and row.
fn place(cell: u32) -> (u32, u32) {
    let (mut x, mut y, mut rest) = (0, 0, cell);
    let mut side = 1;
    while side < SIDE {
        let right = (rest >> 1) & 1;
        let down = (rest ^ right) & 1;
        if down == 0 {
            if right == 1 {
                (x, y) = (side - 1 - x, side - 1 - y);
            }
            (x, y) = (y, x);
        }
        x += side * right;
        y += side * down;
        rest >>= 2;
        side *= 2;
    }
    (x, y)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbours_on_the_curve_touch_and_no_cell_is_there_twice() {
        let mut seen = vec![false; 1 << CELL_BITS];
        let mut before = None;
        for cell in 0..1 << CELL_BITS {
            let (x, y) = place(cell);
            let at = (y * SIDE + x) as usize;
            assert!(!seen[at], "cell {cell} is at {x},{y}");
            seen[at] = true;
            if let Some((left, top)) = before.replace((x, y)) {
                let (left, top): (u32, u32) = (left, top);
                assert_eq!(left.abs_diff(x) + top.abs_diff(y), 1, "cell {cell}");
            }
        }
    }

    #[test]
    fn a_square_has_the_cells_of_its_prefix() {
        for bits in [0, 2, 8, 16, 18] {
            let first = 0x2_5a5a >> (CELL_BITS - bits) << (CELL_BITS - bits);
            let (left, top, side) = square(first, bits);
            for cell in first..first + (1 << (CELL_BITS - bits)) {
                let (x, y) = place(cell);
                assert!((left..left + side).contains(&x) && (top..top + side).contains(&y), "{bits} bits, cell {cell}");
            }
        }
    }
}
