// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Functions of a machine that is made of tables.

use std::boxed::Box;
use std::sync::Mutex;
use std::vec;

use pci_types::ConfigRegionAccess;

use super::*;

/// Where the machine's room for BARs begins, and its size.
const ROOM: (u64, u64) = (0x1000_1000, 0x10_0000);
/// The class of Ethernet controllers.
const ETHERNET: [u8; 3] = [2, 0, 0];
/// How far a physical address is from a bus address.
const APART: u64 = 1 << 40;

/// A function: its configuration space, and the sizes of its BARs.
struct Model {
    address: PciAddress,
    space: [u8; 256],
    bars: [u32; 6],
    /// The features of a virtio device, and which 32 of them it shows.
    features: (u64, u32),
}

/// Where a virtio device has its common configuration: the BAR, and the offset.
const COMMON: (u8, u32) = (4, 0x800);

struct Bridge {
    functions: Mutex<Vec<Model>>,
    takes_messages: bool,
    connected: Mutex<Vec<(PciAddress, Wiring, usize)>>,
    masked: Mutex<Vec<(u32, bool)>>,
    last: u8,
    iommu: Mutex<Iommu>,
}

/// What is asked of an IOMMU, and what it answers.
#[derive(Default)]
struct Iommu {
    unlent: Option<Unlent>,
    is_stuck: bool,
    asked: Vec<&'static str>,
}

impl Bridge {
    fn register(&self, address: PciAddress, register: u16) -> u32 {
        // SAFETY: tables.
        unsafe { self.read(address, register) }
    }
}

impl ConfigRegionAccess for Bridge {
    unsafe fn read(&self, address: PciAddress, offset: u16) -> u32 {
        assert!(offset.is_multiple_of(4) && offset < 256, "a register");
        let functions = self.functions.lock().unwrap();
        let Some(model) = functions.iter().find(|model| model.address == address) else { return u32::MAX };
        u32::from_le_bytes(model.space[usize::from(offset)..][..4].try_into().unwrap())
    }

    unsafe fn write(&self, address: PciAddress, offset: u16, mut value: u32) {
        let mut functions = self.functions.lock().unwrap();
        let model =
            functions.iter_mut().find(|model| model.address == address).expect("nobody writes nowhere");
        let register = usize::from(offset);
        if register == 4 {
            // Errors are cleared by ones; what a function can do stays.
            let status = u16::from_le_bytes([model.space[6], model.space[7]]);
            value = value & 0xffff | u32::from(status & !(value >> 16) as u16 | status & 1 << 4) << 16;
        }
        if let Some(size) = register.checked_sub(0x10).and_then(|at| model.bars.get(at / 4)) {
            assert_eq!(model.space[4] & 2, 0, "it decodes memory");
            let kind = u32::from_le_bytes(model.space[register..][..4].try_into().unwrap()) & 15;
            // The upper half of a BAR of 64 bits has no size here: all its bits can be written.
            value = match size {
                0 => value,
                1 => 0,
                size => value & !(size - 1) | kind,
            };
        }
        model.space[register..][..4].copy_from_slice(&value.to_le_bytes());
    }
}

impl HostBridge for Bridge {
    fn buses(&self) -> (u8, u8) {
        (0, self.last)
    }

    fn room(&self) -> Option<(u64, u64)> {
        Some(ROOM)
    }

    fn physical(&self, bus: u64) -> Option<u64> {
        (bus < 1 << 32).then_some(bus + APART)
    }

    /// There are no other registers than those of one virtio device: where they are, what it has placed says.
    unsafe fn load(&self, address: u64) -> Option<u32> {
        let (all, select) = self.functions.lock().unwrap().first()?.features;
        assert_eq!(
            address,
            APART + u64::from(self.register(at(0, 2, 0), 0x20) & !0xf) + 0x804,
            "its features"
        );
        Some((all >> (32 * select)) as u32)
    }

    unsafe fn store(&self, address: u64, value: u32) -> Option<()> {
        assert_eq!(
            address,
            APART + u64::from(self.register(at(0, 2, 0), 0x20) & !0xf) + 0x800,
            "which it shows"
        );
        self.functions.lock().unwrap().first_mut()?.features.1 = value;
        Some(())
    }

    /// Devices with even numbers are behind an IOMMU.
    fn reach(&self, function: PciAddress, memory: Range, _: bool) -> Option<Reach> {
        let guarded = function.device().is_multiple_of(2);
        (memory.base != 0).then_some(Reach { bus: memory.base + 5, guarded })
    }

    fn lend(&self, _: PciAddress, pieces: &[Range]) -> Result<Vec<u64>, Unlent> {
        let mut iommu = self.iommu.lock().unwrap();
        iommu.asked.push("lend");
        iommu.unlent.map_or(Ok(pieces.iter().map(|piece| piece.base).collect()), Err)
    }

    fn take_back(&self, _: PciAddress) -> bool {
        let mut iommu = self.iommu.lock().unwrap();
        iommu.asked.push("take back");
        !iommu.is_stuck
    }

    fn takes_messages(&self) -> bool {
        self.takes_messages
    }

    fn connect(&self, function: PciAddress, wiring: Wiring, cpu: usize) -> Option<u32> {
        let mut connected = self.connected.lock().unwrap();
        connected.push((function, wiring, cpu));
        Some(connected.len() as u32)
    }

    fn mask(&self, number: u32, masked: bool) {
        self.masked.lock().unwrap().push((number, masked));
    }
}

fn at(bus: u8, device: u8, function: u8) -> PciAddress {
    PciAddress::new(0, bus, device, function)
}

/// A function of a class (base class, subclass, programming interface), with these BARs: whether each has 64 bits, and its size.
fn model(address: PciAddress, [base, sub, interface]: [u8; 3], bars: &[(usize, bool, u32)]) -> Model {
    let mut space = [0; 256];
    space[..4].copy_from_slice(&[0xf4, 0x1a, 0x41, 0x10]);
    (space[0x09], space[0x0a], space[0x0b], space[0x3d]) = (interface, sub, base, 1);
    let mut sizes = [1; 6];
    for &(number, is_wide, size) in bars {
        sizes[number] = size;
        space[0x10 + 4 * number] = if is_wide { 0b1100 } else { 0 };
        if is_wide {
            sizes[number + 1] = 0;
        }
    }
    Model { address, space, bars: sizes, features: (0, 0) }
}

/// Gives a function a table of messages in a BAR.
fn with_messages(mut model: Model, bar: u8, offset: u32) -> Model {
    (model.space[6], model.space[0x34]) = (1 << 4, 0x40);
    // Three vectors, all of them masked by the function.
    model.space[0x40..0x44].copy_from_slice(&[0x11, 0, 2, 0x40]);
    model.space[0x44..0x48].copy_from_slice(&(offset | u32::from(bar)).to_le_bytes());
    model
}

/// Gives a function these features, as a virtio device, and the capability of its common configuration at this place.
fn with_features(mut model: Model, features: u64, place: u8, (bar, offset): (u8, u32)) -> Model {
    (model.space[6], model.space[0x34], model.features.0) = (1 << 4, place, features);
    model.space[usize::from(place)..][..8].copy_from_slice(&[9, 0, 16, 1, bar, 0, 0, 0]);
    if let Some(place) = model.space.get_mut(usize::from(place) + 8..).and_then(|rest| rest.get_mut(..4)) {
        place.copy_from_slice(&offset.to_le_bytes());
    }
    model
}

/// A bridge to another bus.
fn to_bus(address: PciAddress, secondary: u8) -> Model {
    let mut bridge = model(address, [6, 4, 0], &[]);
    (bridge.space[0x0e], bridge.space[0x19]) = (1, secondary);
    bridge
}

fn machine(takes_messages: bool, functions: Vec<Model>) -> &'static [Bridge] {
    let functions = Mutex::new(functions);
    let (connected, masked) = (Mutex::default(), Mutex::default());
    Box::leak(Box::new([Bridge {
        functions,
        takes_messages,
        connected,
        masked,
        last: 9,
        iommu: Mutex::default(),
    }]))
}

fn card(address: PciAddress) -> Model {
    model(address, ETHERNET, &[(1, false, 0x1000), (4, true, 0x4000)])
}

#[test]
fn functions_are_counted_over_all_buses() {
    let other = model(at(0, 1, 0), [1, 0, 0], &[]);
    let mut many = card(at(0, 2, 0));
    many.space[0x0e] = 0x80;
    let bridges = machine(
        false,
        vec![
            other,
            many,
            card(at(0, 2, 7)),
            card(at(0, 3, 0)),
            // Of a device with one function no other is asked for.
            card(at(0, 3, 1)),
            to_bus(at(0, 4, 0), 5),
            card(at(5, 0, 0)),
            // Bridges that lie: back to where they are, to the root, behind the last bus.
            to_bus(at(5, 1, 0), 5),
            to_bus(at(5, 2, 0), 0),
            to_bus(at(5, 3, 0), 10),
            card(at(10, 0, 0)),
        ],
    );
    let claims = Claims::new(bridges);
    let found = |number| claims.find(Kind::Ethernet, number).map(|(_, address)| address);
    assert_eq!([0, 1, 2, 3].map(found), [at(0, 2, 0), at(0, 2, 7), at(0, 3, 0), at(5, 0, 0)].map(Ok));
    assert_eq!(found(4), Err(Refusal::Absent(4)));
    assert_eq!(claims.find(Kind::Nvme, 0), Err(Refusal::Absent(0)));
}

#[test]
fn each_kind_is_counted_by_itself() {
    let with_id = |mut model: Model, vendor: u16, device: u16| {
        model.space[..2].copy_from_slice(&vendor.to_le_bytes());
        model.space[2..4].copy_from_slice(&device.to_le_bytes());
        model
    };
    let bridges = machine(
        false,
        vec![
            // A controller with another programming interface, and a network card of virtio.
            model(at(0, 1, 0), [1, 8, 1], &[]),
            model(at(0, 2, 0), ETHERNET, &[]),
            model(at(0, 3, 0), [1, 8, 2], &[]),
            with_id(model(at(0, 4, 0), [1, 0, 0], &[]), 0x1af4, 0x1042),
            // Another vendor's, and virtio's SCSI controller, which has the same class.
            with_id(model(at(0, 5, 0), [1, 0, 0], &[]), 0x1af5, 0x1042),
            with_id(model(at(0, 6, 0), [1, 0, 0], &[]), 0x1af4, 0x1048),
            with_id(model(at(0, 7, 0), [1, 0, 0], &[]), 0x1af4, 0x1001),
            model(at(0, 8, 0), [1, 8, 2], &[]),
            with_id(to_bus(at(0, 9, 0), 5), 0x1af4, 0x1042),
        ],
    );
    let claims = Claims::new(bridges);
    let all = |kind| {
        let found = |number| claims.find(kind, number).map(|(_, address)| address.device());
        [0, 1, 2].map(found)
    };
    assert_eq!(all(Kind::Ethernet), [Ok(2), Err(Refusal::Absent(1)), Err(Refusal::Absent(1))]);
    assert_eq!(all(Kind::Nvme), [Ok(3), Ok(8), Err(Refusal::Absent(2))]);
    assert_eq!(all(Kind::VirtioBlock), [Ok(4), Ok(7), Err(Refusal::Absent(2))]);
}

/// What a card has, as its windows are: BAR, bus address, size.
fn claimed(claims: &mut Claims<Bridge>, number: usize) -> Result<Vec<(u8, u64, u64)>, Refusal> {
    let function = claims.claim(Kind::Ethernet, number, 3)?;
    let windows = function.bars.iter();
    Ok(windows.map(|(bar, window)| (*bar, window.host - APART, window.size)).collect())
}

#[test]
fn what_firmware_has_not_placed_is_placed() {
    let bridges = machine(false, vec![card(at(0, 1, 0)), card(at(0, 2, 0)), card(at(0, 3, 0))]);
    let mut claims = Claims::new(bridges);
    let mut hosts = |number| claimed(&mut claims, number).unwrap();
    assert_eq!(hosts(0), [(1, 0x1000_1000, 0x1000), (4, 0x1000_4000, 0x4000)], "at a multiple of its size");
    assert_eq!(hosts(2), [(1, 0x1000_8000, 0x1000), (4, 0x1000_c000, 0x4000)]);
    assert_eq!(hosts(1), [(1, 0x1001_0000, 0x1000), (4, 0x1001_4000, 0x4000)], "beside what has been given");
    let bar = |register| bridges[0].register(at(0, 3, 0), register);
    assert_eq!([0x14, 0x20, 0x24].map(bar), [0x1000_8000, 0x1000_c00c, 0]);
}

#[test]
fn what_firmware_has_placed_stays_and_nothing_is_placed_beside_it() {
    let mut placed = card(at(0, 1, 0));
    placed.space[0x14..0x18].copy_from_slice(&0xfe01_0000_u32.to_le_bytes());
    placed.space[0x20..0x24].copy_from_slice(&0xfe00_000c_u32.to_le_bytes());
    let mut claims = Claims::new(machine(false, vec![placed, card(at(0, 2, 0))]));
    assert_eq!(claimed(&mut claims, 1), Err(Refusal::NoRoom(1)), "what is free is not known");
    assert_eq!(claimed(&mut claims, 0), Ok(vec![(1, 0xfe01_0000, 0x1000), (4, 0xfe00_0000, 0x4000)]));
}

#[test]
fn who_shares_a_pin_and_is_nobodys_is_silent() {
    let mut other = model(at(0, 5, 0), [1, 0, 0], &[]);
    // It may interrupt, and has errors, which are cleared by ones.
    (other.space[4], other.space[7]) = (7, 0xf9);
    let bridges = machine(false, vec![card(at(0, 1, 0)), card(at(0, 2, 0)), other]);
    let mut claims = Claims::new(bridges);
    let first = claims.claim(Kind::Ethernet, 0, 3).unwrap();
    first.allow(true);
    claims.claim(Kind::Ethernet, 1, 3).unwrap();
    assert_eq!(
        bridges[0].register(at(0, 5, 0), 4),
        0xf900_0407,
        "no more than that, and no error is cleared"
    );
    assert_eq!(bridges[0].register(at(0, 1, 0), 4), 6, "who is driven goes on");
}

#[test]
fn what_makes_no_sense_is_refused() {
    for (kind, bar) in [(0b010, 1), (0b110, 1), (0b10, 0)] {
        let mut odd = card(at(0, 1, 0));
        odd.space[0x10 + 4 * usize::from(bar)] |= kind;
        let refusal = claimed(&mut Claims::new(machine(false, vec![odd])), 0);
        assert_eq!(refusal, Err(Refusal::Malformed(bar)), "{kind:#b}");
    }
    // Three vectors have 48 bytes.
    for (offset, fits) in [(0x3fd0, true), (0x3fd8, false), (0x4000, false), (0xffff_fff8, false)] {
        let card = with_messages(card(at(0, 1, 0)), 4, offset);
        let claimed = claimed(&mut Claims::new(machine(true, vec![card])), 0);
        assert_eq!(claimed.err(), (!fits).then_some(Refusal::Malformed(4)), "{offset:#x}");
    }
}

#[test]
fn a_function_reaches_memory_when_it_is_allowed_to_and_not_before() {
    let bridges = machine(false, vec![card(at(0, 1, 0))]);
    let function = Claims::new(bridges).claim(Kind::Ethernet, 0, 3).unwrap();
    let command = || bridges[0].register(at(0, 1, 0), 4) & 0xffff;
    assert_eq!(command(), 0x402, "its registers alone");
    function.allow(true);
    assert_eq!(command(), 6, "and its pin");
    function.allow(false);
    assert_eq!(command(), 0x402);
    assert_eq!(*bridges[0].connected.lock().unwrap(), [(at(0, 1, 0), Wiring::Pin(1), 3)]);
    function.mask(false);
    assert_eq!(*bridges[0].masked.lock().unwrap(), [(1, false)]);
    assert_eq!(function.configuration[..4], [0xf4, 0x1a, 0x41, 0x10]);
    assert_eq!(function.configuration[0x20..0x24], 0x1000_400c_u32.to_le_bytes());
}

#[test]
fn a_function_that_nothing_keeps_to_its_memory_has_to_be_trusted() {
    let mut other = card(at(0, 2, 0));
    other.space[0] = 0x86;
    let mut claims = Claims::new(machine(false, vec![card(at(0, 1, 0)), other]));
    let [free, guarded] = [0, 1].map(|number| claims.claim(Kind::Ethernet, number, 3).unwrap());
    let (memory, none) = (Range { base: 0x8000, size: 0x1000 }, Range { base: 0, size: 0x1000 });
    let reach = |guarded| Ok(Reach { bus: 0x8005, guarded });
    assert_eq!([true, false].map(|trusted| guarded.reach(memory, trusted)), [reach(true); 2]);
    assert_eq!(free.reach(memory, true), reach(false));
    assert_eq!(free.reach(memory, false), Err(Refusal::Unguarded));
    assert_eq!([&free, &guarded].map(|function| function.reach(none, true)), [Err(Refusal::NoMemory); 2]);
}

#[test]
fn a_virtio_device_that_bypasses_the_iommu_has_to_be_trusted() {
    let memory = Range { base: 0x8000, size: 0x1000 };
    let reach = |model: Model, trusted| {
        let mut claims = Claims::new(machine(false, vec![model]));
        claims.claim(Kind::Ethernet, 0, 3).unwrap().reach(memory, trusted).map(|reach| reach.guarded)
    };
    let even = || card(at(0, 2, 0));
    let mut not_virtio = even();
    not_virtio.space[3] = 0x11;
    assert_eq!(reach(not_virtio, false), Ok(true));
    assert_eq!(reach(with_features(even(), 1 << 33, 0x40, COMMON), false), Ok(true));
    // Without a capability it says nothing, nor with one that is not all there or that says what is not the device's.
    let silent = || {
        let with = |place, common| with_features(even(), 1 << 33, place, common);
        let other = with_features(even(), !(1 << 33), 0x40, COMMON);
        let far = [(4, 0x801), (4, 0x3ffc), (4, !3), (2, 0), (6, 0)].map(|common| with(0x40, common));
        [even(), other, with(0xf8, COMMON)].into_iter().chain(far)
    };
    for model in silent() {
        assert_eq!(reach(model, false), Err(Refusal::Bypassing));
    }
    for model in silent() {
        assert_eq!(reach(model, true), Ok(false), "nothing keeps it to its memory");
    }
    assert_eq!(reach(with_features(even(), 1 << 33, 0x40, COMMON), true), Ok(true));
}

#[test]
fn a_fault_says_who_and_where() {
    let fault = |address| std::format!("{}", Fault { function: at(0x1a, 2, 3), address });
    assert_eq!(fault(Some(0x4000_1000)), "PCI function 1a:02.3 reached for 0x40001000, which is not its own");
    assert_eq!(fault(None), "PCI function 1a:02.3 reached for what is not its own");
}

#[test]
fn messages_are_sent_where_the_machine_takes_them_and_their_table_is_the_hypervisors() {
    let cards = || vec![with_messages(card(at(0, 1, 0)), 1, 0), with_messages(card(at(0, 2, 0)), 4, 0x2800)];
    let bridges = machine(true, cards());
    let mut claims = Claims::new(bridges);
    let bars = |function: &Function<Bridge>| {
        function.bars.iter().map(|(bar, window)| (*bar, window.size)).collect::<Vec<_>>()
    };
    let first = claims.claim(Kind::Ethernet, 0, 1).unwrap();
    assert_eq!(bars(&first), [(4, 0x4000)], "nothing of the one with the table");
    assert_eq!(first.configuration[0x43], 0x80, "enabled, and unmasked");
    let second = claims.claim(Kind::Ethernet, 1, 2).unwrap();
    assert_eq!(bars(&second), [(1, 0x1000), (4, 0x2000)], "up to the table's page");
    let table = |at| Wiring::Messages { table: APART + at, vectors: 3 };
    let connected = bridges[0].connected.lock().unwrap().clone();
    assert_eq!(connected, [(at(0, 1, 0), table(0x1000_1000), 1), (at(0, 2, 0), table(0x1000_e800), 2)]);
    let command = bridges[0].register(at(0, 1, 0), 4);
    assert_eq!(command & 0xffff, 0x402, "its pin stays silent");

    let bridges = machine(false, cards());
    let pins = Claims::new(bridges).claim(Kind::Ethernet, 0, 1).unwrap();
    assert_eq!(bars(&pins), [(4, 0x4000)]);
    assert_eq!(pins.configuration[0x43] & 0x80, 0, "not enabled");
    assert_eq!(*bridges[0].connected.lock().unwrap(), [(at(0, 1, 0), Wiring::Pin(1), 1)]);
}

#[test]
fn messages_without_a_table_are_never_sent() {
    let mut both = with_messages(card(at(0, 1, 0)), 4, 0x2000);
    // The capability without a table is behind the other one, and enabled (PCI Local Bus Specification 3.0, section 6.8.1).
    both.space[0x41] = 0x60;
    both.space[0x60..0x64].copy_from_slice(&[5, 0, 1, 0]);
    let bridges = machine(true, vec![both]);
    let function = Claims::new(bridges).claim(Kind::Ethernet, 0, 3).unwrap();
    assert_eq!(function.configuration[0x62] & 1, 0);
    assert_eq!(function.configuration[0x43], 0x80, "those with a table are");
}

#[test]
fn what_the_machine_lacks_is_said() {
    let large = model(at(0, 1, 0), ETHERNET, &[(0, false, 0x20_0000)]);
    let mut far = card(at(0, 1, 0));
    (far.space[0x24], far.space[0x20]) = (1, 0x0c);
    let mut mute = card(at(0, 1, 0));
    mute.space[0x3d] = 0;
    let refusal = |model| {
        let bridges = machine(true, vec![model]);
        let refusal = Claims::new(bridges).claim(Kind::Ethernet, 0, 0).err();
        let command = bridges[0].register(at(0, 1, 0), 4);
        assert_eq!(command & 0x404, 0x400, "who is refused reaches no memory, and does not interrupt");
        refusal
    };
    assert_eq!(refusal(large), Some(Refusal::NoRoom(0)));
    assert_eq!(refusal(far), Some(Refusal::Unreachable(4)));
    assert_eq!(refusal(mute), Some(Refusal::NoInterrupt));
    let nobody = Claims::new(machine(true, vec![])).claim(Kind::Ethernet, 0, 0).err();
    assert_eq!(nobody, Some(Refusal::Absent(0)));
}

#[test]
fn a_list_of_capabilities_that_does_not_end_has_none() {
    let mut endless = card(at(0, 1, 0));
    (endless.space[6], endless.space[0x34]) = (1 << 4, 0x40);
    endless.space[0x40..0x42].copy_from_slice(&[9, 0x40]);
    let bridges = machine(true, vec![endless]);
    assert!(Claims::new(bridges).claim(Kind::Ethernet, 0, 0).is_ok());
}

/// What an IOMMU that does not answer has made of a function's memory is taken back once, or is lost; nothing is lent behind that.
#[test]
fn behind_an_iommu_that_does_not_answer_nothing_is_lent() {
    let bridges = machine(false, vec![card(at(0, 2, 0))]);
    let function = Claims::new(bridges).claim(Kind::Ethernet, 0, 0).unwrap();
    let pieces = [Range { base: 0x4000_0000, size: 0x20_0000 }];
    let answers = |unlent, is_stuck| {
        let mut iommu = bridges[0].iommu.lock().unwrap();
        (iommu.unlent, iommu.is_stuck) = (unlent, is_stuck);
        std::mem::take(&mut iommu.asked)
    };
    for _ in 0..2 {
        assert_eq!(function.lend(&pieces), Ok(vec![0x4000_0000]));
        assert!(function.take_back() && function.take_back());
        assert_eq!(answers(None, false), ["lend", "take back"], "once");
    }
    answers(Some(Unlent::NoTables), true);
    assert_eq!(function.lend(&pieces), Err(Unlent::NoTables));
    assert!(function.take_back(), "nothing was lent");
    assert_eq!(answers(Some(Unlent::NoAnswer), false), ["lend"]);
    assert_eq!(function.lend(&pieces), Err(Unlent::NoAnswer));
    assert!(function.take_back(), "it answers again");
    answers(None, true);
    assert_eq!(function.lend(&pieces), Ok(vec![0x4000_0000]));
    assert!(!function.take_back());
    assert_eq!(answers(None, false), ["lend", "take back"]);
    assert_eq!(function.lend(&pieces), Err(Unlent::NoAnswer));
    assert!(function.take_back(), "what it was not lent is not lost");
    assert!(answers(None, false).is_empty());
}
