//! Host bridges as skiboot describes them, and what it is asked.

use std::cell::RefCell;
use std::rc::Rc;

use vm_fdt::FdtWriter;

use super::*;
use crate::board::discover::parse;

const COMPATIBLE: [&str; 2] = ["ibm,power9-pciex", "ibm,ioda3-phb"];

/// A node of the root's, with its properties as skiboot has them under QEMU.
fn node(fdt: &mut FdtWriter, id: u64, compatible: [&str; 2], status: &str, ranges: &[u32]) {
    let node = fdt.begin_node(&std::format!("pciex@{id}")).unwrap();
    fdt.property_string_list("compatible", compatible.map(std::string::String::from).to_vec()).unwrap();
    fdt.property_u64("ibm,opal-phbid", id).unwrap();
    fdt.property_array_u32("bus-range", &[0, 0xff]).unwrap();
    fdt.property_array_u32("ranges", ranges).unwrap();
    fdt.property_array_u32("ibm,opal-msi-ranges", &[0xf_e000, 0xff8]).unwrap();
    fdt.property_u32("ibm,opal-num-pes", 512).unwrap();
    fdt.property_string("status", status).unwrap();
    fdt.end_node(node).unwrap();
}

const RANGES: [u32; 14] = [
    // I/O, which PHB4 has not.
    0x0100_0000,
    0,
    0,
    0x6_0000,
    0,
    0,
    0x1_0000, // And what it has.
    0x0200_0000,
    0,
    0x8000_0000,
    0x6_00c0,
    0,
    0,
    0x7fff_0000,
];

pub(crate) fn machine() -> Vec<Phb> {
    let mut fdt = FdtWriter::new().unwrap();
    let root = fdt.begin_node("").unwrap();
    fdt.property_u32("#address-cells", 2).unwrap();
    fdt.property_u32("#size-cells", 2).unwrap();
    node(&mut fdt, 3, COMPATIBLE, "okay", &RANGES);
    node(&mut fdt, 1, ["ibm,power9-npu-pciex", "ibm,ioda2-npu2-phb"], "okay", &RANGES);
    node(&mut fdt, 2, COMPATIBLE, "disabled", &RANGES);
    node(&mut fdt, 0, COMPATIBLE, "okay", &RANGES[..7]);
    fdt.end_node(root).unwrap();
    bridges(parse(&fdt.finish().unwrap()).unwrap())
}

/// What the firmware was asked: services, and the arguments that say something.
pub(crate) type Calls = Rc<RefCell<Vec<(u64, Vec<u64>)>>>;

/// Returns what the firmware is asked from now on. It answers `answer`.
pub(crate) fn asked(answer: i64) -> Calls {
    let calls = Calls::default();
    let log = Rc::clone(&calls);
    opal::fake::set(move |token, arguments| {
        let put32 = |at: usize, value: u32| {
            // SAFETY: the service's result, which the caller has made room for.
            unsafe { (arguments[at] as *mut u32).write(value.to_be()) };
        };
        let count = match token {
            15 => {
                put32(3, 0x1041_1af4);
                3
            }
            40 => {
                // SAFETY: as above.
                unsafe { (arguments[4] as *mut u64).write((1u64 << 60 | 0x40).to_be()) };
                put32(5, 5);
                4
            }
            23 => {
                // SAFETY: as above. Endpoint 2 is frozen.
                unsafe { (arguments[2] as *mut u8).write(if arguments[1] == 2 { 3 } else { 0 }) };
                2
            }
            18 => 4,
            26 | 37 => 3,
            _ => 7,
        };
        log.borrow_mut().push((token, arguments[..count].to_vec()));
        answer
    });
    calls
}

#[test]
fn bridges_are_found_in_the_order_of_the_tree() {
    let window = Window { bus: 0x8000_0000, host: 0x6_00c0_0000_0000, size: 0x7fff_0000 };
    let first =
        Phb { id: 3, buses: (0, 255), window: Some(window), messages: (0xf_e000, 0xff8), endpoints: 512 };
    let second = Phb { id: 0, window: None, ..first };
    assert_eq!(machine(), [first, second]);
}

#[test]
fn a_machine_without_any_has_none() {
    let mut fdt = FdtWriter::new().unwrap();
    let root = fdt.begin_node("").unwrap();
    fdt.end_node(root).unwrap();
    assert_eq!(bridges(parse(&fdt.finish().unwrap()).unwrap()), []);
}

#[test]
fn bus_addresses_are_those_of_the_window() {
    let [phb, none] = machine().try_into().unwrap();
    assert_eq!(phb.physical(0x8000_0000), Some(0x6_00c0_0000_0000));
    assert_eq!(phb.physical(0xfffe_ffff), Some(0x6_00c0_7ffe_ffff));
    assert_eq!((phb.physical(0x7fff_ffff), phb.physical(0xffff_0000)), (None, None));
    assert_eq!(none.physical(0x8000_0000), None);
}

#[test]
fn the_firmware_reaches_configuration_spaces() {
    let phb = machine()[0];
    let calls = asked(0);
    let function = PciAddress::new(0, 1, 2, 3);
    // SAFETY: nothing is there.
    let read = unsafe { phb.read(function, 0x10) };
    assert_eq!(read, 0x1041_1af4);
    // SAFETY: as above.
    unsafe { phb.write(function, 4, 0x406) };
    assert_eq!(calls.take(), [(15, vec![3, 0x113, 0x10]), (18, vec![3, 0x113, 4, 0x406])]);
    asked(-13);
    // SAFETY: as above.
    assert_eq!(unsafe { phb.read(function, 0) }, u32::MAX, "what failed has read nothing");
}

#[test]
fn a_function_is_an_endpoint_of_its_own() {
    let phb = machine()[0];
    let function = PciAddress::new(0, 1, 0, 0);
    let calls = asked(0);
    assert_eq!(phb.separate(function, 5), Ok(()));
    assert_eq!(calls.take(), [(31, vec![3, 5, 0x100, 7, 1, 1, 1]), (26, vec![3, 5, 3])]);
    asked(-7);
    assert_eq!(phb.separate(function, 5), Err(opal::Error(-7)), "not if the firmware refuses");
}

#[test]
fn who_is_trusted_reaches_memory_where_it_is() {
    let [phb, none] = machine().try_into().unwrap();
    let calls = asked(0);
    assert_eq!(phb.reach_all(5, 0x1234_5000), Some(0x1234_5000));
    assert_eq!(
        calls.take(),
        [(45, vec![3, 5, 10, 0, 1 << 49, 0, 0]), (45, vec![3, 5, 11, 1 << 59, 1 << 49, 0, 0])]
    );
    let second = |physical: u64| Some(1 << 59 | physical);
    assert_eq!(phb.reach_all(5, 0x7fff_ffff), Some(0x7fff_ffff));
    assert_eq!(phb.reach_all(5, 0x8000_0000), second(0x8000_0000), "BARs are there");
    assert_eq!(phb.reach_all(5, 0xffff_f000), second(0xffff_f000), "or messages");
    assert_eq!(phb.reach_all(5, 1 << 32), Some(1 << 32));
    assert_eq!(none.reach_all(5, 0xfffe_f000), Some(0xfffe_f000));
    assert_eq!(none.reach_all(5, 0xffff_f000), second(0xffff_f000));
    assert_eq!(phb.reach_all(5, 1 << 49), None);
    asked(-7);
    assert_eq!(phb.reach_all(5, 0), None, "not if the firmware refuses");
}

#[test]
fn who_is_not_reaches_what_its_table_says() {
    let phb = machine()[0];
    let calls = asked(0);
    let memory = Range { base: 0x12_3456_7000, size: 0x1_f000 };
    assert_eq!(phb.reach_only(5, memory), Some(0x1000));
    let (token, arguments) = calls.take().pop().unwrap();
    let [phb_number, endpoint, window, levels, table, bytes, page] = arguments.try_into().unwrap();
    assert_eq!((token, phb_number, endpoint, window, levels), (44, 3, 5, 10, 1));
    assert_eq!((table % 8192, bytes, page), (0, 8192, 4096));
    // SAFETY: the table that was made above, which stays.
    let entries = unsafe { &*core::ptr::with_exposed_provenance::<[u64; 1024]>(table as usize) };
    for (number, entry) in (0..).zip(entries) {
        let page = (1..=31).contains(&number).then(|| 0x12_3456_7003 + (number - 1) * 4096);
        assert_eq!(u64::from_be(*entry), page.unwrap_or(0), "{number}");
    }
    assert_eq!(phb.reach_only(5, Range { base: 0, size: 511 * 4096 }), Some(0x1000), "as much as there is");
    assert_eq!(phb.reach_only(5, Range { base: 0, size: 512 * 4096 }), None);
    asked(-7);
    assert_eq!(phb.reach_only(5, memory), None, "not if the firmware refuses");
}

#[test]
fn the_firmware_knows_who_is_frozen() {
    let phb = machine()[0];
    asked(0);
    assert_eq!([1, 2].map(|endpoint| phb.is_frozen(endpoint)), [false, true]);
    asked(-7);
    assert!(!phb.is_frozen(2), "nobody knows");
}

#[test]
fn messages_are_those_of_the_bridge() {
    let phb = machine()[0];
    let calls = asked(0);
    let message = Message { address: 1 << 60 | 0x40, data: 5, source: 0xf_e025 };
    assert_eq!(phb.message(5, 0x25), Some(message));
    assert_eq!(calls.take(), [(37, vec![3, 5, 0x25]), (40, vec![3, 5, 0x25, 1])]);
    assert_eq!(phb.message(5, 0xff8), None, "those behind are pins");
    assert_eq!(calls.take(), []);
}
