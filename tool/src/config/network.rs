// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Reads one `[[network]]` and a VM's `networks`, and makes a service of each network and its ports.

use std::ops::Range;

use sha2::{Digest, Sha256};
use toml::Spanned;
use toml::de::{DeTable, DeValue};
use turnstile_bundle::{MAX_FUNCTIONS, MAX_MEMBERS, MAX_PORTS, Mapping, PortSpec, ServiceDevice};

use super::problem::{Problem, did_you_mean};
use super::rate::parse_rate;
use super::read::{At, Reader};
use super::service::{self, Draft, Service};
use super::{Vm, disk, vm};

const KEYS: [&str; 3] = ["name", "time-limit", "beside-realtime"];
const PORT_KEYS: [&str; 5] = ["network", "mac", "guard", "isolated", "rate"];
const WANTED: &str = "a list of networks such as [\"lan\"]";
const MAC_ADVICE: &str = "write six bytes such as \"52:54:00:12:34:56\", or leave `mac` out";

/// A network, which VMs have by its name.
#[derive(Debug)]
pub struct Network {
    /// Its name, with the letters of a VM's.
    pub name: At<String>,
    /// How long it may take for an event, in nanoseconds.
    pub limit: u64,
    /// Whether it may keep real-time VMs waiting.
    pub beside_realtime: bool,
}

/// What a VM says of its port of a network.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Port {
    /// The network's name.
    pub network: At<String>,
    /// The address of its own.
    pub mac: Option<At<[u8; 6]>>,
    /// Whether the VM may send from the port's address alone, and nobody else from it.
    pub guard: bool,
    /// Whether it exchanges nothing with other isolated ports.
    pub isolated: bool,
    /// How much it may send, in bits per second.
    pub rate: Option<u64>,
}

impl Port {
    /// A port of which nothing is said.
    fn of(network: At<String>) -> Self {
        Port { network, mac: None, guard: true, isolated: false, rate: None }
    }

    /// Its address: its own, or one that is always the same for these names.
    fn address(&self, vm: &Vm) -> [u8; 6] {
        self.mac.as_ref().map_or_else(|| computed(&self.network.value, &vm.name.value), |mac| mac.value)
    }
}

/// Computes an address that is locally administered.
fn computed(network: &str, vm: &str) -> [u8; 6] {
    let hash = Sha256::digest(format!("{network}/{vm}"));
    [0x02, hash[0], hash[1], hash[2], hash[3], hash[4]]
}

/// Reads a network; `None` if something that it cannot do without is missing or wrong.
pub fn read(table: &DeTable<'_>, span: Range<usize>, problems: &mut Vec<Problem>) -> Option<Network> {
    let header = span.start..span.end.min(span.start + "[[network]]".len());
    let mut reader = Reader::new(table, header, &KEYS, &[], problems);
    let name = vm::read_name(&mut reader, "network", "lan");
    let limit = service::read_limit(&mut reader, disk::LIMIT);
    let beside_realtime = reader.boolean("beside-realtime").is_some_and(|at| at.value);
    Some(Network { name: name?, limit: limit?, beside_realtime })
}

/// Reads the `networks` of a VM.
pub fn read_ports(reader: &mut Reader<'_, '_>) -> Vec<Port> {
    let items = reader.list("networks", WANTED);
    items.into_iter().filter_map(|item| read_port(reader, item)).collect()
}

/// Reads a port: the name of a network, or a table.
fn read_port<'a>(reader: &mut Reader<'a, '_>, item: &'a Spanned<DeValue<'a>>) -> Option<Port> {
    let table = match item.get_ref() {
        DeValue::String(name) => return Some(Port::of(At::new(name.to_string(), item.span()))),
        DeValue::Table(table) => table,
        _ => {
            reader.wrong_type("networks", item, WANTED);
            return None;
        }
    };
    let mut reader = reader.inner(table, item.span(), &PORT_KEYS);
    let network = reader.required_string("network", "give the name of the network");
    let mac = reader.string("mac").and_then(|text| read_mac(&mut reader, text));
    let guard = reader.boolean("guard").is_none_or(|at| at.value);
    let isolated = reader.boolean("isolated").is_some_and(|at| at.value);
    let rate = reader.string("rate").and_then(|text| match parse_rate(&text.value) {
        Ok(rate) => Some(rate),
        Err((what, help)) => {
            reader.problem(text.span, what, help);
            None
        }
    });
    Some(Port { network: network?, mac, guard, isolated, rate })
}

/// Reads an address that a port can have.
fn read_mac(reader: &mut Reader<'_, '_>, text: At<String>) -> Option<At<[u8; 6]>> {
    let what = match parse_mac(&text.value) {
        None => format!("`{}` is not an Ethernet address", text.value),
        Some([first, rest @ ..]) if first & 1 != 0 => {
            let [a, b, c, d, e] = rest;
            let help = format!("make the first byte even: \"{}\"", show_mac([first & !1, a, b, c, d, e]));
            reader.problem(text.span, format!("`{}` is the address of a group", text.value), help);
            return None;
        }
        Some([0, 0, 0, 0, 0, 0]) => "no port can have the address of zeros".to_owned(),
        Some(mac) => return Some(At::new(mac, text.span)),
    };
    reader.problem(text.span, what, MAC_ADVICE);
    None
}

fn parse_mac(text: &str) -> Option<[u8; 6]> {
    let is_byte = |byte: &&str| byte.len() == 2 && byte.bytes().all(|digit| digit.is_ascii_hexdigit());
    let bytes: Option<Vec<u8>> = text
        .split(':')
        .map(|byte| Some(byte).filter(is_byte).and_then(|byte| u8::from_str_radix(byte, 16).ok()))
        .collect();
    bytes?.try_into().ok()
}

/// Writes an address as a configuration would have it.
fn show_mac(mac: [u8; 6]) -> String {
    mac.map(|byte| format!("{byte:02x}")).join(":")
}

/// Makes a service of each network, and finds what does not fit together.
pub fn services(networks: &[Network], vms: &[Vm], problems: &mut Vec<Problem>) -> Vec<Draft> {
    let mut drafts = Vec::new();
    for (index, network) in networks.iter().enumerate() {
        let name = &network.name.value;
        let has = |vm: &Vm| vm.networks.iter().any(|port| port.network.value == *name);
        let members: Vec<usize> = (0..vms.len()).filter(|&index| has(&vms[index])).collect();
        let (what, help) = if networks.iter().take(index).any(|earlier| earlier.name.value == *name) {
            (format!("there are two networks with the name `{name}`"), "give each its own")
        } else if members.is_empty() {
            (format!("no VM has the network `{name}`"), "name it in the `networks` of a VM, or take it out")
        } else {
            let bounds = (network.limit, network.beside_realtime);
            drafts.push(Draft::of_network(&network.name, bounds, members));
            continue;
        };
        problems.push(Problem::new(network.name.span.clone(), what, help));
    }
    let names: Vec<&str> = networks.iter().map(|network| network.name.value.as_str()).collect();
    let ports =
        vms.iter().enumerate().flat_map(|(index, vm)| (0..vm.networks.len()).map(move |at| (index, at)));
    for (number, (index, place)) in ports.enumerate() {
        let problem = misfit(&names, vms, index, place).or_else(|| {
            let what = format!("the VMs have more than {MAX_PORTS} ports of networks");
            (number == MAX_PORTS).then(|| (what, "take the others out".to_owned()))
        });
        let span = &vms[index].networks[place].network.span;
        problems.extend(problem.map(|(what, help)| Problem::new(span.clone(), what, help)));
    }
    drafts
}

/// Says why the VM of this index cannot have the port at this place of its list, and what helps.
fn misfit(networks: &[&str], vms: &[Vm], index: usize, place: usize) -> Option<(String, String)> {
    let (vm, port) = (&vms[index], &vms[index].networks[place]);
    let name = &port.network.value;
    let has = |vm: &&Vm| vm.networks.iter().any(|other| other.network.value == *name);
    if !networks.contains(&name.as_str()) {
        let help = match networks {
            [] => format!("describe it: [[network]] with name = \"{name}\""),
            names => did_you_mean(name, names),
        };
        return Some((format!("there is no network `{name}`"), help));
    }
    if vm.networks.iter().take(place).any(|earlier| earlier.network.value == *name) {
        return Some((format!("the network `{name}` is named twice"), "name it once".to_owned()));
    }
    if vm.mapping == Mapping::OnDemand {
        return Some(service::no_reach(&vm.name.value, ("network", "networks")));
    }
    if vms.iter().take(index).filter(has).count() == MAX_MEMBERS {
        let what = format!("the network `{name}` has more than {MAX_MEMBERS} VMs");
        return Some((what, "describe another one for the others".to_owned()));
    }
    let address = port.address(vm);
    let is_same = |other: &Vm, port: &Port| port.network.value == *name && port.address(other) == address;
    let same = |other: &&Vm| other.networks.iter().any(|port| is_same(other, port));
    let other = vms.iter().take(index).find(same)?;
    let what = format!("the VM `{}` has the address {} on this network", other.name.value, show_mac(address));
    Some((what, format!("give another `mac`: {{ network = \"{name}\", mac = \"52:54:00:12:34:56\" }}")))
}

/// Makes the ports of the networks among these services, in their order, and finds VMs with too many functions.
pub fn ports(services: &[Service], vms: &[Vm], problems: &mut Vec<Problem>) -> Vec<PortSpec> {
    for (index, vm) in vms.iter().enumerate() {
        let is_function =
            |service: &&Service| (service.vm, service.device) == (Some(index), ServiceDevice::Pci);
        let left = MAX_FUNCTIONS.saturating_sub(services.iter().filter(is_function).count());
        if let Some(beyond) = vm.networks.get(left) {
            let what = service::too_many_functions(&vm.name.value);
            problems.push(Problem::new(beyond.network.span.clone(), what, "take the others out"));
        }
    }
    let mut ports = Vec::new();
    for (service, network) in services.iter().enumerate() {
        for (vm, member) in vms.iter().enumerate().filter(|_| network.device == ServiceDevice::Network) {
            let port = member.networks.iter().find(|port| port.network.value == network.name.value);
            ports.extend(port.map(|port| {
                let &Port { guard, isolated, rate, .. } = port;
                PortSpec { service, vm, mac: port.address(member), guard, isolated, rate }
            }));
        }
    }
    ports
}
