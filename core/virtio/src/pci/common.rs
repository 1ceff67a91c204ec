// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The common configuration structure (section 4.1.4.3).

use crate::registers::{Effect, NO_VECTOR, Part, Registers};

/// How many bytes it has.
pub(super) const LENGTH: usize = 0x3c;

/// Reads `size` bytes at any offset: none of its fields changes by being read. The driver notifies queues in so many `places`.
pub(super) fn read<const Q: usize>(registers: &Registers<Q>, places: u16, offset: u64, size: u8) -> u64 {
    let offset = usize::try_from(offset).unwrap_or(usize::MAX);
    let bytes = image(registers, places);
    let bytes = bytes.get(offset..).unwrap_or_default().iter().take(size.min(8).into());
    bytes.rev().fold(0, |value, &byte| value << 8 | u64::from(byte))
}

/// All fields as they are now.
fn image<const Q: usize>(registers: &Registers<Q>, places: u16) -> [u8; LENGTH] {
    let mut image = [0; LENGTH];
    let mut put = |at: usize, bytes: &[u8]| {
        if let Some(field) = image.get_mut(at..at + bytes.len()) {
            field.copy_from_slice(bytes);
        }
    };
    let (device_select, driver_select) = registers.selected_words();
    put(0x00, &device_select.to_le_bytes());
    put(0x04, &registers.offered_word().to_le_bytes());
    put(0x08, &driver_select.to_le_bytes());
    put(0x0c, &registers.accepted_word().to_le_bytes());
    put(0x10, &registers.config_vector().to_le_bytes());
    put(0x12, &registers.count().to_le_bytes());
    put(0x14, &[registers.shown_status().bits(), registers.generation()]);
    put(0x16, &registers.selected_queue().to_le_bytes());
    let Some(queue) = registers.selected() else { return image };
    put(0x18, &queue.size().to_le_bytes());
    put(0x1a, &queue.vector().to_le_bytes());
    put(0x1c, &u16::from(queue.is_enabled()).to_le_bytes());
    put(0x1e, &(registers.selected_queue() % places.max(1)).to_le_bytes());
    for (at, part) in [(0x20, Part::Descriptors), (0x28, Part::Driver), (0x30, Part::Device)] {
        put(at, &queue.area(part).to_le_bytes());
    }
    image
}

/// Writes a field, by an access of its own width; addresses also by halves. Others are ignored.
pub(super) fn write<const Q: usize>(
    registers: &mut Registers<Q>,
    vectors: usize,
    offset: u64,
    size: u8,
    value: u64,
) -> Option<Effect> {
    let vector = |value: u64| if value < vectors as u64 { value as u16 } else { NO_VECTOR };
    match (offset, size) {
        (0x00, 4) => *registers.selects().0 = value as u32,
        (0x08, 4) => *registers.selects().1 = value as u32,
        (0x0c, 4) => registers.accept_word(value as u32),
        (0x10, 2) => registers.set_config_vector(vector(value & 0xffff)),
        (0x14, 1) => return registers.write_status(value as u8),
        (0x16, 2) => *registers.queue_select() = value as u16,
        (0x18, 2) => registers.selected_mut()?.set_size(value as u16),
        (0x1a, 2) => registers.selected_mut()?.set_vector(vector(value & 0xffff)),
        (0x1c, 2) if value as u16 == 1 => return registers.enable(),
        (0x20..0x38, 4 | 8) if offset.is_multiple_of(size.into()) => {
            let part = match offset {
                0x20..0x28 => Part::Descriptors,
                0x28..0x30 => Part::Driver,
                _ => Part::Device,
            };
            let queue = registers.selected_mut()?;
            let upper = !offset.is_multiple_of(8);
            queue.set_half(part, upper, value as u32);
            if size == 8 {
                queue.set_half(part, true, (value >> 32) as u32);
            }
        }
        (0x3a, 2) if value as u16 == 1 => return registers.reset_queue(),
        _ => {}
    }
    None
}
