// SPDX-License-Identifier: Apache-2.0 OR MIT
//! PCI functions: their configuration spaces, and their message-signalled interrupts (LoPAPR 7.3.4 and 7.3.10.5). All functions are
//! on bus 0 behind one host bridge, in slots from 1 on, with the number 0 there.
//!
//! The firmware alone gives messages: it writes address and data to the function's MSI-X table. Whether a vector is masked is the
//! guest's affair.

use super::Function;

/// The unit ID of the host bridge.
pub const UNIT: u64 = 0x0800_0000_2000_0000;
/// Where functions write their messages, whose data is a source.
pub const MESSAGE: u64 = 1 << 60;

/// The PCI functions of a guest.
pub trait Functions {
    /// Reads 1, 2 or 4 bytes of the configuration space of the function in a slot; `None` if there is none.
    fn read(&mut self, slot: u64, offset: u32, size: u32) -> Option<u32>;
    /// Writes to it; `None` if there is none.
    fn write(&mut self, slot: u64, offset: u32, size: u32, value: u32) -> Option<()>;
    /// Writes four bytes to a BAR of the function in a slot, whether or not it is decoded.
    fn write_bar(&mut self, slot: u64, bar: u32, offset: u32, value: u32);
    /// Gives so many sources to the function in a slot, or as many as there are; returns how many. It has no others then.
    fn give(&mut self, slot: u64, count: u32) -> u32;
    /// Returns a source of the function in a slot; `None` if it has not been given so many.
    fn source(&self, slot: u64, number: u32) -> Option<u32>;
}

/// Carries out one of the calls; returns its results, or `None` if an argument is wrong.
#[cold]
#[inline(never)] // Guests without such functions are not to pay for it.
pub(super) fn call(
    function: Function,
    arguments: [u32; 6],
    functions: &mut impl Functions,
) -> Option<[u32; 3]> {
    let [address, a, b, c, d, e] = arguments;
    let is_unit = u64::from(a) << 32 | u64::from(b) == UNIT;
    let (is_here, size, value) = match function {
        Function::ReadPciConfig | Function::WritePciConfig => (true, a, b),
        _ => (is_unit, c, d),
    };
    let slot = slot(address).filter(|_| is_here)?;
    match function {
        Function::ReadPciConfig | Function::IbmReadPciConfig => {
            let value = functions.read(slot, register(address, size)?, size)?;
            Some([value, 0, 0])
        }
        Function::WritePciConfig | Function::IbmWritePciConfig => {
            functions.write(slot, register(address, size)?, size, value)?;
            Some([0; 3])
        }
        Function::ChangeMsi => change(slot, [c, d, e], functions),
        _ => functions.source(slot, c).map(|source| [source, EDGE, 0]),
    }
}

/// What is said of a source that is an edge.
const EDGE: u32 = 1;

/// Returns the slot of a function.
fn slot(address: u32) -> Option<u64> {
    const BUS: u32 = 0xff << 16;
    const NUMBER: u32 = 7 << 8;
    (address & (BUS | NUMBER) == 0).then_some(u64::from(address >> 11 & 0x1f))
}

/// Returns the register that an address names, for an access of so many bytes.
fn register(address: u32, size: u32) -> Option<u32> {
    let register = address >> 20 & 0xf00 | address & 0xff;
    (matches!(size, 1 | 2 | 4) && register.is_multiple_of(size)).then_some(register)
}

/// What `ibm,change-msi` is asked for.
mod ask {
    /// To give back what there is, or change how much it is.
    pub(super) const ANY: u32 = 1;
    /// MSI, of which there is none: only giving back.
    pub(super) const MSI: u32 = 3;
    pub(super) const MSIX: u32 = 4;
}

/// `ibm,change-msi`: what is asked for, how many vectors, and the number in a sequence of calls, of which there is one.
fn change(slot: u64, [ask, count, sequence]: [u32; 3], functions: &mut impl Functions) -> Option<[u32; 3]> {
    const KIND: u32 = 2;
    let is_known = match ask {
        ask::ANY | ask::MSIX => true,
        ask::MSI => count == 0,
        _ => false,
    };
    if !is_known || sequence != 1 {
        return None;
    }
    let table = Table::of(slot, functions)?;
    let given = functions.give(slot, count.min(table.vectors));
    for vector in 0..given {
        let data = functions.source(slot, vector)?;
        let words = [MESSAGE as u32, (MESSAGE >> 32) as u32, data];
        for (offset, word) in (table.offset + 16 * vector..).step_by(4).zip(words) {
            functions.write_bar(slot, table.bar, offset, word);
        }
    }
    table.enable(slot, given != 0, functions)?;
    Some([given, sequence + 1, KIND])
}

/// The MSI-X table of a function, as its capability describes it.
struct Table {
    /// The capability's register of control.
    control: u32,
    vectors: u32,
    bar: u32,
    offset: u32,
}

impl Table {
    /// Finds it. Whatever the function says, no more registers are read than there can be capabilities.
    fn of(slot: u64, functions: &mut impl Functions) -> Option<Self> {
        const LIST: u32 = 0x34;
        const MSIX: u32 = 0x11;
        const MOST: usize = 48;
        let mut place = functions.read(slot, LIST, 1)? & 0xfc;
        for _ in 0..MOST {
            if place < 0x40 {
                return None;
            }
            let head = functions.read(slot, place, 4)?;
            // A function that does not answer: each read may take as long as its service may.
            if head == u32::MAX {
                return None;
            }
            if head & 0xff == MSIX {
                let table = functions.read(slot, place + 4, 4)?;
                // Whatever the function says: no sum overflows.
                let (bar, offset) = (table & 7, table & 0x0fff_fff8);
                return Some(Self { control: place + 2, vectors: (head >> 16 & 0x7ff) + 1, bar, offset });
            }
            place = head >> 8 & 0xfc;
        }
        None
    }

    /// Lets the function send messages, or not.
    fn enable(&self, slot: u64, on: bool, functions: &mut impl Functions) -> Option<()> {
        const ENABLE: u32 = 1 << 15;
        let control = functions.read(slot, self.control, 2)? & !ENABLE;
        functions.write(slot, self.control, 2, if on { control | ENABLE } else { control })
    }
}
