// SPDX-License-Identifier: Apache-2.0 OR MIT
//! SPIs that come again: what presents them in short does what all that is there for does, and costs as little as it promises.

mod common;

use common::bench::{Bench, NOTHING, ONE_WRITE};
use common::hardware::Accesses;
use turnstile_vgic::{Backing, LrState};

const AGAIN: Accesses = Accesses { reads: 1, writes: 1, ..NOTHING };

/// The edge of SPI 33 comes, and the inbox is drained. Returns the accesses.
fn edge(bench: &Bench) -> Accesses {
    bench.0.vgic.pulse_spi(&bench.0, 33);
    bench.0.drain();
    bench.take()
}

#[test]
fn an_spi_that_comes_again_is_presented_with_one_read_and_one_write() {
    let bench = Bench::new(4);
    assert_eq!(edge(&bench), ONE_WRITE, "it had no list register");
    for _ in 0..3 {
        assert_eq!(bench.handle(), 33);
        assert_eq!(edge(&bench), AGAIN);
    }
    // Twice before the guest looks is once.
    assert_eq!(edge(&bench), Accesses { reads: 2, ..NOTHING });
    assert_eq!(bench.handle(), 33);
    // Who is told to look finds no edge.
    bench.0.with(0, |gic, cx| gic.deliver(cx, 33));
    assert_eq!(bench.0.cpus[0].borrow_mut().hw.acknowledge(), None);
    // While it is active it is pending behind that.
    edge(&bench);
    assert_eq!(bench.acknowledge(), 33);
    edge(&bench);
    bench.end(33);
    assert_eq!(bench.handle(), 33);
    assert_eq!(bench.0.cpus[0].borrow_mut().hw.acknowledge(), None);
    edge(&bench);
    assert_eq!(bench.0.cpus[0].borrow_mut().hw.highest_pending().map(|lr| lr.state), Some(LrState::Pending));
}

#[test]
fn an_spi_that_comes_again_with_a_change_is_as_it_is_then() {
    let bench = Bench::new(4);
    let signaled = || bench.0.cpus[0].borrow_mut().hw.highest_pending();
    // As by another vCPU: this one has not looked since.
    let change = |offset, size, value| bench.0.with(0, |gic, cx| gic.dist_write(cx, offset, size, value));
    let again = || {
        edge(&bench);
        let found = signaled().map(|lr| (lr.priority, lr.group1));
        if found.is_some() {
            assert_eq!(bench.handle(), 33);
        }
        found
    };
    assert_eq!((again(), again()), (Some((0, true)), Some((0, true))));
    // Its priority, and its group.
    change(0x421, 1, 0x40);
    assert_eq!((again(), again()), (Some((0x40, true)), Some((0x40, true))));
    change(0x84, 4, 0);
    assert_eq!((again(), again()), (Some((0x40, false)), Some((0x40, false))));
    // Its route, to nobody, and back.
    change(0x6108, 8, 0x77);
    assert_eq!(again(), None);
    change(0x6108, 8, 0);
    bench.0.drain();
    assert_eq!(bench.handle(), 33);
    assert_eq!((again(), again()), (Some((0x40, false)), Some((0x40, false))));
    // A level that is high now: it asks for maintenance, and comes back.
    bench.0.vgic.set_spi_line(&bench.0, 33, true);
    edge(&bench);
    assert!(signaled().is_some_and(|lr| lr.backing == Backing::Software { eoi_maintenance: true }));
}

#[test]
fn an_edge_behind_a_level_is_not_lost() {
    let bench = Bench::new(4);
    let line = |high| bench.0.vgic.set_spi_line(&bench.0, 33, high);
    line(true);
    bench.0.drain();
    assert_eq!(bench.handle(), 33);
    // Nobody has looked since, and both arrive as one.
    line(false);
    edge(&bench);
    // Whoever looks now finds it pending still.
    bench.0.with(0, |gic, cx| gic.deliver(cx, 33));
    assert_eq!(bench.handle(), 33);
    bench.0.service();
    assert_eq!(bench.0.cpus[0].borrow_mut().hw.acknowledge(), None);
}

#[test]
fn an_spi_that_comes_again_does_not_keep_others_out() {
    let bench = Bench::new(1);
    edge(&bench);
    bench.0.vgic.pulse_spi(&bench.0, 32);
    bench.0.drain();
    assert_eq!(bench.handle(), 33);
    edge(&bench);
    assert_eq!(bench.handle(), 32);
}

#[test]
fn an_spi_of_many_that_comes_again_is_planned() {
    let bench = Bench::new(1);
    edge(&bench);
    bench.handle();
    // Another one, more urgent, wants the list register.
    bench.0.with(0, |gic, cx| gic.dist_write(cx, 0x420, 4, 0x8080_8000));
    bench.0.drain();
    edge(&bench);
    bench.0.vgic.pulse_spi(&bench.0, 32);
    bench.0.drain();
    bench.0.vgic.pulse_spi(&bench.0, 33);
    bench.0.drain();
    let handled = [(); 2].map(|()| {
        let intid = bench.handle();
        bench.0.service();
        intid
    });
    assert_eq!(handled, [32, 33]);
}

/// SPI 33 has an edge that the vCPU's own CPU brings. Returns whether it is presented, and the accesses; if not, it is posted.
fn own_edge(bench: &Bench) -> (bool, Accesses) {
    let presented = bench.0.with(0, |gic, cx| gic.present_edge(cx, 33));
    let accesses = bench.take();
    if !presented {
        bench.0.vgic.edge_spi(&bench.0, 33);
        bench.0.drain();
        bench.take();
    }
    (presented, accesses)
}

/// A vCPU whose SPI 33, which has edges, has come and was handled.
fn handled() -> Bench {
    let bench = Bench::new(4);
    // GICD_ICFGR2: edges.
    bench.0.with(0, |gic, cx| gic.dist_write(cx, 0xc08, 4, 2 << 2));
    edge(&bench);
    assert_eq!(bench.handle(), 33);
    bench
}

#[test]
fn an_edge_on_its_owners_cpu_is_presented_without_being_posted() {
    let bench = handled();
    for _ in 0..3 {
        assert_eq!(own_edge(&bench), (true, AGAIN));
        assert_eq!(bench.handle(), 33);
    }
    // Twice before the guest looks is once.
    assert_eq!(own_edge(&bench), (true, AGAIN));
    assert_eq!(own_edge(&bench), (false, Accesses { reads: 1, ..NOTHING }));
    assert_eq!(bench.handle(), 33);
    bench.0.service();
    assert_eq!(bench.0.cpus[0].borrow_mut().hw.acknowledge(), None);
    // While it is active it is pending behind that.
    own_edge(&bench);
    assert_eq!(bench.acknowledge(), 33);
    assert!(!own_edge(&bench).0);
    bench.end(33);
    assert_eq!(bench.handle(), 33);
    assert_eq!(bench.0.cpus[0].borrow_mut().hw.acknowledge(), None);
    // It is seen, taken back and put away as any other.
    own_edge(&bench);
    assert_eq!(bench.0.with(0, |gic, cx| gic.dist_read(cx, 0x204, 4)), 2);
    bench.0.with(0, |gic, cx| gic.dist_write(cx, 0x284, 4, 2));
    assert_eq!(bench.0.cpus[0].borrow_mut().hw.acknowledge(), None);
}

#[test]
fn an_edge_on_its_owners_cpu_is_as_the_spi_is_then() {
    let write = |offset, size, value| {
        move |bench: &Bench| bench.0.with(0, |gic, cx| gic.dist_write(cx, offset, size, value))
    };
    // As by another vCPU: this one has not looked since. Each keeps the edge from being presented in short.
    let refused = |change: &dyn Fn(&Bench)| {
        let bench = handled();
        change(&bench);
        bench.take();
        let (presented, accesses) = own_edge(&bench);
        assert!(!presented && accesses.writes == 0, "nothing is done");
        let found = bench.0.cpus[0].borrow_mut().hw.highest_pending();
        found.map(|lr| (lr.intid, lr.priority, lr.group1))
    };
    assert_eq!(refused(&write(0x421, 1, 0x40)), Some((33, 0x40, true)));
    assert_eq!(refused(&write(0x84, 4, 0)), Some((33, 0, false)));
    assert_eq!(refused(&write(0x6108, 8, 0x77)), None, "another route");
    assert_eq!(refused(&write(0x184, 4, 2)), None, "disabled");
    assert_eq!(refused(&write(0xc08, 4, 0)), None, "levels have no edges");
    // Its line is high: there is no edge.
    assert_eq!(refused(&|bench| bench.0.vgic.set_spi_line(&bench.0, 33, true)), Some((33, 0, true)));
    let handled_line = |bench: &Bench| {
        bench.0.vgic.set_spi_line(&bench.0, 33, true);
        bench.0.drain();
        assert_eq!(bench.handle(), 33);
    };
    assert_eq!(refused(&handled_line), None, "it is still high");
    // Somebody else's edge was first: both are one.
    assert_eq!(refused(&|bench| bench.0.vgic.edge_spi(&bench.0, 33)), Some((33, 0, true)));
    // The hardware is another vCPU's.
    assert_eq!(refused(&|bench| bench.0.with(0, |gic, cx| gic.put(cx.vif))), None);
}

#[test]
fn an_edge_on_its_owners_cpu_keeps_no_other_out() {
    let bench = Bench::new(1);
    bench.0.with(0, |gic, cx| gic.dist_write(cx, 0xc08, 4, 2 << 2));
    edge(&bench);
    bench.0.vgic.pulse_spi(&bench.0, 32);
    bench.0.drain();
    assert_eq!(bench.handle(), 33);
    assert!(!own_edge(&bench).0);
    assert_eq!(bench.handle(), 32);
}

#[test]
fn a_line_that_rises_and_falls_is_one_edge() {
    let bench = handled();
    let pending = || bench.0.with(0, |gic, cx| gic.dist_read(cx, 0x204, 4));
    // Disabled, it stays where it is.
    bench.0.with(0, |gic, cx| gic.dist_write(cx, 0x184, 4, 2));
    bench.0.vgic.edge_spi(&bench.0, 33);
    bench.0.vgic.edge_spi(&bench.0, 33);
    assert_eq!(pending(), 2);
    bench.0.with(0, |gic, cx| gic.dist_write(cx, 0x284, 4, 2));
    assert_eq!(pending(), 0);
    bench.0.vgic.set_spi_line(&bench.0, 33, true);
    bench.0.with(0, |gic, cx| gic.dist_write(cx, 0x284, 4, 2));
    bench.0.vgic.edge_spi(&bench.0, 33);
    assert_eq!(pending(), 0, "it is high already");
    bench.0.vgic.set_spi_line(&bench.0, 33, false);
    bench.0.with(0, |gic, cx| gic.dist_write(cx, 0xc08, 4, 0));
    bench.0.vgic.edge_spi(&bench.0, 33);
    assert_eq!(pending(), 0, "a level has fallen again");
}
