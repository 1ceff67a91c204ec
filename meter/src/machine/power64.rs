// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What POWER's interrupts say of the guest that they leave (Power ISA 3.0B, Book III 6.5).

use super::{Exception, Exit, Machine, Reason, Register};
use crate::power64_interrupts::{OFFSET, interrupt, vector};

/// How the guest was left, if the first block outside begins at a vector.
pub fn exit(machine: &mut impl Machine, start: u64) -> Option<Exit> {
    let offset = vector(start)?;
    let exception = exception(machine, start)?;
    Some(Exit {
        reason: Reason::Vector(offset),
        pc: exception.pc,
        vectors: start & !OFFSET,
        synchronous: exception.synchronous,
    })
}

/// The interrupt whose vector a block begins at.
pub fn exception(machine: &mut impl Machine, start: u64) -> Option<Exception> {
    let known = interrupt(vector(start)?.into())?;
    let register = if known.hypervisor { Register::Hsrr0 } else { Register::Srr0 };
    Some(Exception { pc: machine.read(register)?, synchronous: known.synchronous })
}

#[cfg(test)]
mod tests {
    use super::super::tests::Fake;
    use super::*;

    #[test]
    fn each_interrupt_tells_by_its_register_where_it_came_from() {
        let mut machine =
            Fake { values: vec![(Register::Srr0, 0x100), (Register::Hsrr0, 0x200)], ..Fake::default() };
        let hcall = exit(&mut machine, 0xc00).unwrap();
        let expected = Exit { reason: Reason::Vector(0xc00), pc: 0x100, vectors: 0, synchronous: true };
        assert_eq!(hcall, expected);
        let storage = exit(&mut machine, 0xe00).unwrap();
        assert_eq!((storage.reason.to_string().as_str(), storage.pc), ("hv-data-storage", 0x200));
        assert!(!exit(&mut machine, 0xea0).unwrap().synchronous);
        assert_eq!(exit(&mut machine, 0x2000_0000), None, "not by an interrupt");
    }
}
