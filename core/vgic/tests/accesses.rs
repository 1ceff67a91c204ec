// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What each operation costs in accesses to the virtual CPU interface: promises, counted.

mod common;

use common::bench::{Bench, NOTHING, ONE_WRITE};
use common::hardware::Accesses;
use turnstile_vgic::{GROUPS_CHANGED, Outcome, VcpuGic};

#[test]
fn nothing_to_do_costs_nothing() {
    let bench = Bench::new(4);
    bench.0.with(0, |gic, cx| {
        gic.settle(cx);
        gic.maintenance(cx);
        assert!(!gic.has_pending(cx.vif));
        assert_eq!(gic.set_private_line(cx.vif, 20, false), Outcome::Done);
        gic.deliver(cx, 40);
        assert_eq!(gic.dist_read(cx, 0x204, 4), 0);
        assert_eq!(gic.redist_read(cx, 0, 0x1_0200, 4), 0);
        gic.dist_write(cx, 0x184, 4, 0xffff_ffff);
        gic.redist_write(cx, 0, 0x1_0180, 4, 0xffff_ffff);
        gic.deliver(cx, GROUPS_CHANGED);
    });
    assert_eq!(bench.sgi(3), Outcome::Done, "disabled by now");
    assert_eq!(bench.take(), NOTHING);
}

#[test]
fn an_sgi_that_comes_again_is_presented_with_one_read_and_one_write() {
    let bench = Bench::new(4);
    let present = || bench.0.with(0, |gic, cx| gic.present_sgi(cx.vif, 3));
    assert!(!present(), "it has no list register yet");
    assert_eq!(bench.take(), NOTHING);
    assert_eq!(bench.sgi(3), Outcome::Done);
    bench.take();
    assert!(!present(), "the guest has not handled it");
    assert_eq!(bench.take(), Accesses { reads: 1, ..NOTHING });
    bench.handle();
    assert!(present());
    assert_eq!(bench.take(), Accesses { reads: 1, writes: 1, ..NOTHING });
    assert_eq!(bench.handle(), 3);
    // Disabled, it is not.
    bench.0.with(0, |gic, cx| gic.redist_write(cx, 0, 0x1_0180, 4, 1 << 3));
    bench.take();
    assert!(!present());
    assert_eq!(bench.take(), NOTHING);
}

#[test]
fn an_injection_with_a_free_list_register_is_one_write() {
    let bench = Bench::new(4);
    assert_eq!(bench.sgi(0), Outcome::Done);
    assert_eq!(bench.take(), ONE_WRITE);
    bench.0.with(0, |gic, cx| assert_eq!(gic.set_private_line(cx.vif, 20, true), Outcome::Done));
    assert_eq!(bench.take(), ONE_WRITE);
    bench.0.vgic.pulse_spi(&bench.0, 33);
    bench.0.drain();
    assert_eq!(bench.take(), ONE_WRITE);
    assert_eq!(bench.timer(), Outcome::Done);
    assert_eq!(bench.take(), ONE_WRITE);
}

#[test]
fn an_injection_again_is_one_read_and_at_most_one_write() {
    let bench = Bench::new(4);
    let _ = bench.sgi(0);
    bench.take();
    assert_eq!(bench.sgi(0), Outcome::Done, "still pending");
    assert_eq!(bench.take(), Accesses { reads: 1, ..NOTHING });
    let intid = bench.acknowledge();
    assert_eq!(bench.sgi(0), Outcome::Done, "active");
    assert_eq!(bench.take(), Accesses { reads: 1, writes: 1, ..NOTHING });
    bench.end(intid);
    assert_eq!(bench.handle(), 0);
    for _ in 0..3 {
        assert_eq!(bench.sgi(0), Outcome::Done, "finished");
        assert_eq!(bench.take(), Accesses { reads: 1, writes: 1, ..NOTHING });
        assert_eq!(bench.handle(), 0);
    }
}

#[test]
fn a_timer_tick_is_one_write_and_no_read() {
    let bench = Bench::new(4);
    for _ in 0..5 {
        assert_eq!(bench.timer(), Outcome::Done);
        assert_eq!(bench.take(), ONE_WRITE);
        assert_eq!(bench.handle(), 27);
        assert!(bench.0.cpus[0].borrow().hw.physical.is_empty());
    }
}

#[test]
fn a_line_is_asked_for_until_the_guest_is_seen_to_have_taken_its_interrupt() {
    let bench = Bench::new(4);
    assert_eq!(bench.timer(), Outcome::Done);
    bench.take();
    bench.settle();
    assert_eq!(bench.take(), Accesses { reads: 1, lines: 1, ..NOTHING }, "it is high");
    bench.acknowledge();
    bench.settle();
    assert_eq!(bench.take(), Accesses { reads: 1, ..NOTHING });
    bench.settle();
    assert_eq!(bench.take(), NOTHING);
    bench.end(27);
    assert_eq!(bench.timer(), Outcome::Done, "the next one is as cheap as the first");
    assert_eq!(bench.take(), ONE_WRITE);
}

#[test]
fn a_line_that_has_fallen_takes_its_interrupt_back() {
    let bench = Bench::new(4);
    let lower = || bench.0.cpus[0].borrow_mut().hw.set_line(26, false);
    let pending = || bench.0.with(0, |gic, cx| gic.redist_read(cx, 0, 0x1_0200, 4));
    for _ in 0..3 {
        assert_eq!(bench.timer(), Outcome::Done);
        lower();
        bench.take();
        bench.settle();
        let accesses = bench.take();
        assert_eq!((accesses.lines, accesses.clears, accesses.deactivations), (1, 1, 1));
        assert_eq!(bench.0.cpus[0].borrow_mut().hw.acknowledge(), None);
        // It fires again, and is taken; its line shows whether it is active or not.
        assert_eq!(bench.timer(), Outcome::Done);
        assert_eq!(pending(), 1 << 27);
        assert_eq!(bench.acknowledge(), 27);
        assert_eq!(pending(), 1 << 27);
        lower();
        assert_eq!(pending(), 0);
        bench.end(27);
        assert_eq!(bench.timer(), Outcome::Done);
        lower();
        assert_eq!(pending(), 0, "the register asks, too");
    }
}

#[test]
fn a_line_that_falls_while_its_interrupt_is_disabled_is_gone_when_that_is_enabled() {
    let bench = Bench::new(4);
    let write = |offset| bench.0.with(0, |gic, cx| gic.redist_write(cx, 0, offset, 4, 1 << 27));
    write(0x1_0180);
    assert_eq!(bench.timer(), Outcome::Done);
    bench.0.cpus[0].borrow_mut().hw.set_line(26, false);
    write(0x1_0100);
    assert_eq!(bench.0.cpus[0].borrow_mut().hw.acknowledge(), None);
    assert!(bench.0.cpus[0].borrow().hw.physical.is_empty());
}

#[test]
fn empty_list_registers_are_looked_for_only_when_none_is_known() {
    let bench = Bench::new(2);
    for intid in [0, 1] {
        let _ = bench.sgi(intid);
    }
    bench.handle();
    bench.handle();
    bench.take();
    assert_eq!(bench.sgi(2), Outcome::Slow);
    assert_eq!(bench.take(), NOTHING);
    bench.settle();
    assert_eq!(bench.take(), Accesses { elrsr: 1, writes: 1, ..NOTHING });
    assert_eq!(bench.sgi(3), Outcome::Done, "the other one was found too");
    assert_eq!(bench.take(), ONE_WRITE);
}

#[test]
fn the_end_of_a_level_interrupt_is_one_eisr_read_and_one_clear() {
    let bench = Bench::new(4);
    bench.0.vgic.set_spi_line(&bench.0, 33, true);
    bench.0.drain();
    let intid = bench.acknowledge();
    bench.take();
    // The device is served: its line falls, and the guest's end of interrupt needs no exit any more.
    bench.0.vgic.set_spi_line(&bench.0, 33, false);
    bench.0.drain();
    assert_eq!(bench.take(), Accesses { reads: 1, writes: 1, ..NOTHING });
    bench.end(intid);
    assert!(!bench.0.cpus[0].borrow().hw.misr());

    // The device is not served: the interrupt comes again.
    bench.0.vgic.set_spi_line(&bench.0, 34, true);
    bench.0.drain();
    assert_eq!(bench.handle(), 34);
    bench.take();
    assert!(bench.0.cpus[0].borrow().hw.misr());
    bench.0.with(0, |gic, cx| gic.maintenance(cx));
    assert_eq!(bench.take(), Accesses { eisr: 1, writes: 1, ..NOTHING });
    assert_eq!(bench.acknowledge(), 34);
}

#[test]
fn what_the_planner_has_placed_comes_again_at_the_price_of_a_free_list_register_however_many_wait() {
    for others in [3, 12] {
        let bench = Bench::new(2);
        bench.0.with(0, |gic, cx| {
            for word in 0..4 {
                let sgis = if word == 0 { 0xc0c0_c080 } else { 0xc0c0_c0c0 };
                gic.redist_write(cx, 0, 0x1_0400 + 4 * word, 4, sgis);
            }
        });
        for intid in 1..=others {
            let _ = bench.sgi(intid);
        }
        bench.settle();
        assert_eq!([bench.sgi(0), bench.timer()], [Outcome::Slow; 2]);
        bench.settle();
        for _ in 0..3 {
            assert_eq!(bench.handle(), 27, "priority 0");
            assert_eq!(bench.handle(), 0);
            bench.take();
            assert_eq!(bench.sgi(0), Outcome::Done);
            assert_eq!(bench.take(), Accesses { reads: 1, writes: 1, ..NOTHING });
            assert_eq!(bench.timer(), Outcome::Done);
            assert_eq!(bench.take(), ONE_WRITE);
        }
        // One that has not been acknowledged is pending already; one that is active becomes both, by the planner.
        assert_eq!(bench.handle(), 27);
        assert_eq!(bench.sgi(0), Outcome::Slow);
        bench.settle();
        assert_eq!(bench.acknowledge(), 0);
        assert_eq!(bench.sgi(0), Outcome::Slow);
        bench.settle();
        bench.end(0);
        bench.0.with(0, |gic, cx| gic.maintenance(cx));
        assert_eq!(bench.handle(), 0);
    }
}

#[test]
fn without_overflow_no_condition_is_ever_armed() {
    let bench = Bench::new(4);
    for round in 0..100 {
        let _ = bench.sgi(round % 16);
        bench.settle();
        bench.handle();
    }
    assert_eq!(bench.take().maintenance, 0);
}

#[test]
fn put_of_an_idle_vcpu_costs_nothing() {
    let bench = Bench::new(16);
    bench.0.with(0, |gic, cx| gic.put(cx.vif));
    assert_eq!(bench.take(), NOTHING);
    // What the one before has armed is not known.
    bench.0.with(0, |gic, cx| gic.load(cx));
    assert_eq!(bench.take(), Accesses { maintenance: 1, ..NOTHING });
}

#[test]
fn put_of_a_vcpu_that_has_handled_its_sgis_looks_once() {
    let bench = Bench::new(4);
    for intid in [1, 2, 3] {
        let _ = bench.sgi(intid);
        bench.handle();
    }
    bench.take();
    bench.0.with(0, |gic, cx| gic.put(cx.vif));
    assert_eq!(bench.take(), Accesses { elrsr: 1, ..NOTHING });
    bench.0.with(0, |gic, cx| gic.load(cx));
    bench.take();
    let _ = bench.sgi(2);
    assert_eq!(bench.acknowledge(), 2, "it comes again");
}

#[test]
fn the_private_state_of_a_vcpu_stays_small() {
    assert!(size_of::<VcpuGic>() <= 8192, "{}", size_of::<VcpuGic>());
}
