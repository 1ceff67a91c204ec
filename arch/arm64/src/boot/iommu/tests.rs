// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What reaches an SMMU whose registers are memory of the test. What it does with it, `core/iommu` tests.

use turnstile_arch_common::heap::Heap;

use super::*;

#[test]
fn registers_and_tables_are_reached_and_in_order() {
    let block = vec![0_u64; 0x2_0000 / 8].leak();
    let base = block.as_mut_ptr().expose_provenance() as u64;
    // SAFETY: memory of that size, for ever, that nobody else has.
    let registers = unsafe { Registers::new(base) };
    let mut reached = Reached { registers, tables: &mut Heap };
    reached.set32(0x20, 5);
    reached.set64(0x80, 7 << 40);
    assert_eq!((reached.get32(0x20), reached.get32(0x84), registers.read64(0x80)), (5, 7 << 8, 7 << 40));
    let table = reached.allocate(0x1000).unwrap();
    reached.write(table, 511, 9);
    assert_eq!((reached.read(table, 511), reached.read(table, 0)), (9, 0));
    crate::cpu::regs::fakes::take_instructions();
    reached.synchronize();
    assert_eq!(crate::cpu::regs::fakes::take_instructions(), ["dsb sy"]);
}

#[test]
fn one_that_lacks_something_is_refused() {
    let block = vec![0_u64; 0x2_0000 / 8].leak();
    let base = block.as_mut_ptr().expose_provenance() as u64;
    // SAFETY: as above.
    let registers = unsafe { Registers::new(base) };
    let started = with_tables(|tables| Smmu::start(&mut Reached { registers, tables }, 1));
    assert_eq!(started.err(), Some(Error::Feature("stage 2")));
}

#[test]
fn one_that_does_not_answer_is_not_taken_for_one_without_tables() {
    for error in [Error::Stuck("CMDQ_CONS"), Error::Refused, Error::Taken(3)] {
        assert_eq!(unlent(error), Unlent::NoAnswer);
    }
    for error in [Error::Paging(turnstile_paging::Error::OutOfTables), Error::TooMany, Error::NoStream(3)] {
        assert_eq!(unlent(error), Unlent::NoTables);
    }
}
