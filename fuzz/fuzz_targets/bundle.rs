// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The bundle reader: any bytes as they are; with size and digest made right, so that the checks behind
//! the digest are reached; and as changes to a valid bundle, so that these begin deep in its structure.
#![no_main]

use std::sync::LazyLock;

use libfuzzer_sys::fuzz_target;
use turnstile_bundle::{
    Arm64, Bundle, Class, CpuList, DiskSpec, Drive, DriveKind, Machine, Mapping, OnCrash, Pc, Pmu, PortSpec, Schedule,
    ServiceDevice, ServiceSpec, VmSpec, validate, validate_ports, validate_services, write_with,
};
use turnstile_service::image::{AARCH64, Header, PAGE};
use xxhash_rust::xxh64::xxh64;

/// Where the format puts the digest.
const DIGEST: std::ops::Range<usize> = 76..84;

static VALID: LazyLock<Vec<u8>> = LazyLock::new(|| {
    let vm = VmSpec {
        name: "linux",
        vcpus: 2,
        cpus: CpuList::new(&[0, 1]),
        schedule: Schedule::Pinned,
        memory: 64 << 20,
        mapping: Mapping::OnDemand,
        machine: Machine::Arm64(Arm64 { pmu: Pmu::Trapped, sve: true, ..Arm64::default() }),
        on_crash: OnCrash::Restart,
        statistics: true,
        cmdline: "console=ttyAMA0",
        kernel: b"kernel",
        initrd: Some(b"initrd"),
    };
    let schedule = Schedule::Shared(Class::RealTime { priority: 5 });
    let other = VmSpec { name: "other", cpus: CpuList::new(&[2]), schedule, ..vm };
    let machine = Machine::Pc(Pc::default());
    let pc = VmSpec { name: "pc", cpus: CpuList::new(&[3, 4]), machine, ..vm };
    let program = program();
    let service = ServiceSpec {
        name: "console",
        program: &program,
        vm: Some(0),
        device: ServiceDevice::Uart,
        limit: ServiceSpec::LIMIT,
        memory: false,
        disk: None,
        joins: None,
        uplink: None,
        ports: "",
        cpu: None,
    };
    let mapped = VmSpec { name: "disks", mapping: Mapping::AtStart, cpus: CpuList::new(&[5, 6]), ..vm };
    let disk = ServiceSpec { name: "root", vm: Some(3), device: ServiceDevice::Pci, memory: true, ..service };
    let lan = ServiceSpec { name: "lan", vm: None, device: ServiceDevice::Network, ..disk };
    let data = ServiceSpec { name: "data", disk: Some(1), ..disk };
    let here = ServiceSpec { name: "here", disk: Some(2), ..disk };
    let random = ServiceSpec { name: "random", device: ServiceDevice::Entropy, ..disk };
    let more = ServiceSpec { name: "more", vm: Some(4), disk: Some(3), joins: Some(4), ..disk };
    let balloon = ServiceSpec { name: "balloon", vm: Some(5), device: ServiceDevice::Balloon, ..disk };
    let services = [service, ServiceSpec { disk: Some(0), ..disk }, data, lan, here, random, more, balloon];
    let root = DiskSpec { name: "root", image: Some(b"image"), size: 4096, read_only: false, writes: None, drive: None };
    let drive = Drive { kind: DriveKind::Nvme, number: 0, partition: Some(2), trusted: true };
    let here = DiskSpec { name: "here", image: None, size: 0, drive: Some(drive), ..root };
    let more = Drive { partition: Some(3), ..drive };
    let more = DiskSpec { name: "more", drive: Some(more), ..here };
    let disks = [root, DiskSpec { name: "data", image: None, read_only: true, ..root }, here, more];
    let mac = [2, 0, 0, 0, 0, 1];
    let port = PortSpec { service: 3, vm: 3, mac, guard: true, isolated: false, rate: Some(64_000), queues: 1 };
    let last = VmSpec { name: "last", cpus: CpuList::new(&[7, 8]), ..mapped };
    let ports =
        [port, PortSpec { vm: 4, mac: [2, 0, 0, 0, 0, 2], guard: false, isolated: true, rate: None, queues: 4, ..port }];
    let pooled = VmSpec { name: "pooled", mapping: Mapping::FromPool, cpus: CpuList::new(&[9, 10]), ..mapped };
    write_with(&[vm, other, pc, mapped, last, pooled], &services, &disks, &ports, pooled.memory).expect("a valid bundle")
});

/// The least program of a service.
fn program() -> Vec<u8> {
    let header = Header { isa: AARCH64, code: PAGE, stack: PAGE, ..Header::default() };
    let mut program = header.bytes().to_vec();
    program.resize(2 * PAGE as usize, 0);
    program
}

fn read(blob: &[u8]) {
    if let Ok(bundle) = Bundle::parse(blob) {
        assert!(validate(bundle.vms()).is_ok());
        assert!(validate_services(bundle.vms(), bundle.services(), bundle.disks()).is_ok());
        assert!(validate_ports(bundle.vms(), bundle.services(), bundle.ports()).is_ok());
        // What is read can be written, and reads the same again.
        let written = write_with(bundle.vms(), bundle.services(), bundle.disks(), bundle.ports(), bundle.pool());
        let written = written.expect("a valid bundle can be written");
        let again = Bundle::parse(&written).expect("what was written can be read");
        assert_eq!(again.vms(), bundle.vms());
        assert_eq!(again.services(), bundle.services());
        assert_eq!(again.disks(), bundle.disks());
        assert_eq!(again.ports(), bundle.ports());
    }
}

/// Reads the blob with size and digest made right.
fn read_signed(mut blob: Vec<u8>) {
    if blob.len() < DIGEST.end {
        return;
    }
    let size = blob.len() as u32;
    blob[..4].copy_from_slice(&0xd00d_feedu32.to_be_bytes());
    blob[4..8].copy_from_slice(&size.to_be_bytes());
    blob[DIGEST].fill(0);
    let digest = xxh64(&blob, 0);
    blob[DIGEST].copy_from_slice(&digest.to_be_bytes());
    read(&blob);
}

/// Applies changes of six bytes each: an offset, and a new word for there.
fn changed(changes: &[u8]) -> Vec<u8> {
    let mut blob = VALID.clone();
    for change in changes.as_chunks::<6>().0 {
        let [high, low, word @ ..] = *change;
        let at = usize::from(u16::from_be_bytes([high, low])) % blob.len();
        blob.iter_mut().skip(at).zip(word).for_each(|(place, byte)| *place = byte);
    }
    blob
}

fuzz_target!(|data: &[u8]| {
    read(data);
    read_signed(data.to_vec());
    let blob = changed(data);
    assert_eq!(Bundle::parse(&blob).is_ok(), blob == *VALID);
    read_signed(blob);
});
