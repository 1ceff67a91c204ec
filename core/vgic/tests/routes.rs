// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Which vCPUs an SGI and an SPI reach, with dense, sparse and clustered affinities.

mod common;

use common::machine::Machine;
use proptest::prelude::*;
use turnstile_vgic::{ConfigError, MAX_SPIS, MAX_VCPUS, Model, SgiRegister, Vgic, VgicConfig};

fn config(mpidrs: &[u64]) -> VgicConfig<'_> {
    VgicConfig { model: Model::Gicv3, mpidrs, spis: 32, priority_bits: 5, group1_at_reset: true }
}

/// Returns affinities with sixteen vCPUs per cluster.
fn clustered(count: usize) -> Vec<u64> {
    (0..count as u64).map(|n| (n / 16) << 8 | (n % 16)).collect()
}

/// Composes an SGI register's value for the vCPU with an affinity.
fn value(mpidr: u64, intid: u64) -> u64 {
    let [aff0, aff1, aff2, aff3] = [mpidr, mpidr >> 8, mpidr >> 16, mpidr >> 32].map(|aff| aff & 0xff);
    aff3 << 48 | (aff0 / 16) << 44 | aff2 << 32 | intid << 24 | aff1 << 16 | 1 << (aff0 % 16)
}

fn reached(vgic: &Vgic, register: SgiRegister, value: u64, sender: usize) -> Vec<usize> {
    match SgiRegister::is_broadcast(value) {
        true => vgic.sgi_broadcast(register, value, sender).collect(),
        false => vgic.sgi_targets(register, value).collect(),
    }
}

fn targets(vgic: &Vgic, value: u64, sender: usize) -> Vec<usize> {
    assert_eq!(u64::from(SgiRegister::intid(value)), value >> 24 & 15);
    let mut targets = reached(vgic, SgiRegister::Sgi1r, value, sender);
    targets.sort_unstable();
    if !SgiRegister::is_broadcast(value) {
        let mut searched: Vec<usize> = vgic.search_sgi_targets(SgiRegister::Sgi1r, value).collect();
        searched.sort_unstable();
        assert_eq!(searched, targets, "the search finds what the table knows: {value:#x}");
    }
    for vcpu in 0..vgic.vcpus() {
        neighbors(vgic, value, vcpu, &targets);
    }
    targets
}

/// Demands that a vCPU's neighbors know the same targets of a value that names nobody else.
fn neighbors(vgic: &Vgic, value: u64, vcpu: usize, targets: &[usize]) {
    let mpidr = vgic.mpidr(vcpu).unwrap();
    let own = SgiRegister::naming(mpidr);
    // Aff3, the range selector, Aff2 and Aff1 are those of the vCPU, and nothing else is set.
    let near = value & !0x0f00_ffff == own & !0xffff;
    assert_eq!(SgiRegister::names_neighbors(value, own), near, "{value:#x} by {mpidr:#x}");
    if near {
        let mut known: Vec<usize> = vgic.neighbors(vcpu).sgi_targets(SgiRegister::Sgi1r, value).collect();
        known.sort_unstable();
        assert_eq!(known, targets, "{value:#x} by {mpidr:#x}");
    }
}

/// Demands that each vCPU is reached by its affinity and by no other, and broadcasts by all but one.
fn check(mpidrs: &[u64]) {
    let vgic = Vgic::new(&config(mpidrs)).unwrap();
    for (vcpu, &mpidr) in mpidrs.iter().enumerate() {
        assert_eq!(targets(&vgic, value(mpidr, 5), 0), [vcpu], "{mpidr:#x}");
        for bit in 0..40 {
            let other = mpidr ^ 1 << bit;
            let is_other = mpidrs.iter().position(|m| m & 0xff_00ff_ffff == other & 0xff_00ff_ffff);
            let expected: Vec<usize> = is_other.into_iter().collect();
            assert_eq!(targets(&vgic, value(other, 0), 0), expected, "{other:#x}");
        }
    }
    let sender = mpidrs.len() / 2;
    let others: Vec<usize> = (0..mpidrs.len()).filter(|vcpu| *vcpu != sender).collect();
    assert_eq!(targets(&vgic, 1 << 40 | 0xffff, sender), others);
}

#[test]
fn dense_and_clustered_affinities() {
    check(&[0]);
    check(&(0..16).collect::<Vec<u64>>());
    check(&clustered(64));
    check(&clustered(512));
    check(&(0..32).map(|n| n << 16).collect::<Vec<u64>>());
    check(&(0..32).map(|n| n << 32 | 0x8000_0000).collect::<Vec<u64>>());
    check(&(0..64).collect::<Vec<u64>>());
    check(&(0..64).map(|n| n << 8).collect::<Vec<u64>>());
}

#[test]
fn a_list_names_several_and_absent_ones_are_ignored() {
    let mpidrs: Vec<u64> = clustered(20);
    let vgic = Vgic::new(&config(&mpidrs)).unwrap();
    assert_eq!(targets(&vgic, 0b1010_0001, 0), [0, 5, 7]);
    assert_eq!(targets(&vgic, 1 << 16 | 0xffff, 0), [16, 17, 18, 19]);
    assert_eq!(targets(&vgic, 2 << 16 | 0xffff, 0), []);
    assert_eq!(targets(&vgic, 0x00ff_0000_0000_ffff, 0), []);
    assert_eq!(targets(&vgic, 1 << 44 | 0xffff, 0), [], "range selector");
    assert_eq!(targets(&vgic, 0xffff, 3), (0..16).collect::<Vec<usize>>(), "a list may name the sender");
}

#[test]
fn an_sgi_reaches_only_targets_that_have_it_in_its_group() {
    let machine = Machine::new(&[0, 1, 2], 4);
    machine.with(1, |gic, cx| gic.redist_write(cx, 1, 0x1_0080, 4, 0xffff_fffd));
    let to_all = |register, intid: u64| reached(&machine.vgic, register, intid << 24 | 0b111, 0);
    assert_eq!(to_all(SgiRegister::Sgi1r, 1), [0, 2]);
    assert_eq!(to_all(SgiRegister::Sgi0r, 1), [1]);
    assert_eq!(to_all(SgiRegister::Asgi1r, 1), [1]);
    assert_eq!(to_all(SgiRegister::Sgi1r, 2), [0, 1, 2]);
    assert_eq!(to_all(SgiRegister::Sgi0r, 2), []);
    let everybody = reached(&machine.vgic, SgiRegister::Sgi0r, 1 << 24 | 1 << 40, 0);
    assert_eq!(everybody, [1]);
    let neighbors = |register, intid: u64| -> Vec<usize> {
        machine.vgic.neighbors(2).sgi_targets(register, intid << 24 | 0b111).collect()
    };
    assert_eq!(neighbors(SgiRegister::Sgi1r, 1), [0, 2]);
    assert_eq!(neighbors(SgiRegister::Sgi0r, 1), [1]);
    assert_eq!(
        machine.vgic.neighbors(3).sgi_targets(SgiRegister::Sgi1r, 0xffff).next(),
        None,
        "there is no such vCPU"
    );
}

#[test]
fn an_spi_goes_where_its_route_says() {
    let machine = Machine::new(&[0x0, 0x1, 0x100, 0x1_0000_0203], 4);
    machine.with(0, |gic, cx| {
        gic.dist_write(cx, 0, 4, 2);
        gic.dist_write(cx, 0x104, 4, 1);
    });
    let routed = |router: u64| {
        machine.with(0, |gic, cx| gic.dist_write(cx, 0x6000 + 8 * 32, 8, router));
        machine.vgic.pulse_spi(&machine, 32);
        let posted: Vec<usize> = (0..4).filter(|vcpu| machine.inboxes[*vcpu].take().contains(&32)).collect();
        machine.with(0, |gic, cx| gic.dist_write(cx, 0x284, 4, 1));
        posted
    };
    assert_eq!(routed(0x1), [1]);
    assert_eq!(routed(0x100), [2]);
    assert_eq!(routed(0x1_0000_0203), [3]);
    assert_eq!(routed(0x2), []);
    assert_eq!(routed(0x8000_0100), [0], "one of many");
}

#[test]
fn impossible_configurations_are_errors() {
    let error = |config: VgicConfig| Vgic::new(&config).err();
    let many: Vec<u64> = clustered(MAX_VCPUS + 1);
    assert_eq!(error(config(&[])), Some(ConfigError::Vcpus));
    assert_eq!(error(config(&many)), Some(ConfigError::Vcpus));
    assert_eq!(error(config(&many[..MAX_VCPUS])), None);
    assert_eq!(error(config(&[1, 0x8000_0001])), Some(ConfigError::Affinities));
    assert_eq!(error(VgicConfig { spis: 33, ..config(&[0]) }), Some(ConfigError::Spis));
    assert_eq!(error(VgicConfig { spis: MAX_SPIS + 32, ..config(&[0]) }), Some(ConfigError::Spis));
    assert_eq!(error(VgicConfig { spis: MAX_SPIS, ..config(&[0]) }), None);
    assert_eq!(error(VgicConfig { priority_bits: 3, ..config(&[0]) }), Some(ConfigError::PriorityBits));
    assert_eq!(error(VgicConfig { priority_bits: 9, ..config(&[0]) }), Some(ConfigError::PriorityBits));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 40, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn sparse_affinities(mpidrs in prop::collection::hash_set(any::<u64>().prop_map(|m| m & 0xff_00ff_ffff), 1..64)) {
        check(&mpidrs.into_iter().collect::<Vec<u64>>());
    }
}
