// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Reads one `[[network]]`, and makes a service of each network and its ports.

use std::ops::Range;

use toml::de::DeTable;
use turnstile_bundle::{MAX_FUNCTIONS, MAX_MEMBERS, MAX_NAME, MAX_PORTS, PortSpec, ServiceDevice, Uplink};

use super::port::{Port, show_mac};
use super::problem::{Problem, did_you_mean};
use super::read::{At, Reader, named};
use super::service::{self, Draft, Runs, Service};
use super::{Board, NetworkCard, Vm, disk, vm};

const KEYS: [&str; 7] = ["name", "uplink", "trusted", "card", "time-limit", "cpus", "beside-realtime"];

/// A network, which VMs have by its name.
#[derive(Debug)]
pub struct Network {
    /// Its name, with the letters of a VM's.
    pub name: At<String>,
    /// How its service runs.
    pub runs: Runs,
    /// The machine's network card that connects it with other networks.
    pub uplink: Option<At<Uplink>>,
    /// Which card that is in QEMU.
    pub card: NetworkCard,
}

/// Reads a network; `None` if something that it cannot do without is missing or wrong.
pub fn read(table: &DeTable<'_>, span: Range<usize>, problems: &mut Vec<Problem>) -> Option<Network> {
    let header = span.start..span.end.min(span.start + "[[network]]".len());
    let mut reader = Reader::new(table, header, &KEYS, &[], problems);
    let name = vm::read_name(&mut reader, "network", "lan", MAX_NAME);
    let runs = Runs::read(&mut reader, disk::LIMIT);
    let card = reader.choice("card", &named(&NetworkCard::ALL, NetworkCard::name));
    let uplink = read_uplink(&mut reader)?;
    if let (Some(card), None) = (&card, &uplink) {
        let what = "a network without an uplink has no card";
        reader.problem(card.span.clone(), what, "take `card` out, or write uplink = \"net0\"");
    }
    let card = card.map_or_else(NetworkCard::default, |card| card.value);
    Some(Network { name: name?, runs: runs?, uplink, card })
}

/// Reads which network card of the machine the network has, and whether it is trusted with it; `None` if that is wrong.
fn read_uplink(reader: &mut Reader<'_, '_>) -> Option<Option<At<Uplink>>> {
    let (uplink, trusted) = (reader.string("uplink"), reader.boolean("trusted"));
    let Some(name) = uplink else {
        if let Some(trusted) = trusted.filter(|trusted| trusted.value) {
            let what = "a network without an uplink is trusted with nothing";
            reader.problem(trusted.span, what, "take `trusted` out, or write uplink = \"net0\"");
        }
        return Some(None);
    };
    let card = name.value.strip_prefix("net").and_then(|number| number.parse().ok());
    let Some(card) = card.filter(|card| *card < Uplink::CARDS) else {
        let what = format!("`{}` is no network card of a machine", name.value);
        let help = format!(
            "write \"net0\" for the first one, in the order of PCI addresses, up to \"net{}\"",
            Uplink::CARDS - 1
        );
        reader.problem(name.span, what, help);
        return None;
    };
    let trusted = trusted.is_some_and(|trusted| trusted.value);
    Some(Some(At::new(Uplink { card, trusted }, name.span)))
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
            let uplink = network.uplink.as_ref().map(|uplink| (uplink.value, network.card));
            drafts.push(Draft::of_network(&network.name, network.runs.clone(), members, uplink));
            continue;
        };
        problems.push(Problem::new(network.name.span.clone(), what, help));
    }
    problems.extend((0..networks.len()).filter_map(|index| same_card(networks, index)));
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

/// Says that an earlier network has the card of the one with this index.
fn same_card(networks: &[Network], index: usize) -> Option<Problem> {
    let uplink = networks[index].uplink.as_ref()?;
    let has = |network: &&Network| {
        network.uplink.as_ref().is_some_and(|other| other.value.card == uplink.value.card)
    };
    let other = networks.iter().take(index).find(has)?;
    let what = format!("the network `{}` has this card", other.name.value);
    Some(Problem::new(uplink.span.clone(), what, "give each network its own, or make one network of both"))
}

/// Says that a board does not have a network card, where a network wants it.
pub fn no_card(networks: &[Network], board: Board) -> Option<Problem> {
    let most = board.functions();
    let uplinks = networks.iter().filter_map(|network| network.uplink.as_ref());
    let beyond = uplinks.into_iter().find(|uplink| uplink.value.card >= most)?;
    let (what, help) = match most {
        0 => (
            format!("no network card of the board `{}` can be used", board.name()),
            "take the uplink out, or choose another board".to_owned(),
        ),
        most => (
            format!("the board `{}` has {most} network cards", board.name()),
            format!("give one up to \"net{}\"", most - 1),
        ),
    };
    Some(Problem::new(beyond.span.clone(), what, help))
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
    if vms.iter().take(index).filter(has).count() == MAX_MEMBERS {
        let what = format!("the network `{name}` has more than {MAX_MEMBERS} VMs");
        return Some((what, "describe another one for the others".to_owned()));
    }
    let address = port.address(vm);
    let is_same = |other: &Vm, port: &Port| port.network.value == *name && port.address(other) == address;
    let same = |other: &&Vm| other.networks.iter().any(|port| is_same(other, port));
    let other = vms.iter().take(index).find(same)?;
    let what = format!("the VM `{}` has the address {} on this network", other.name.value, show_mac(address));
    let help = match port.mac {
        Some(_) => "give this one another `mac`, or leave it out".to_owned(),
        None => format!("give another `mac`: {{ network = \"{name}\", mac = \"52:54:00:12:34:56\" }}"),
    };
    Some((what, help))
}

/// Makes the ports of the networks among these services, in their order, and finds VMs with too many functions.
pub fn ports(services: &[Service], vms: &[Vm], problems: &mut Vec<Problem>) -> Vec<PortSpec> {
    for (index, vm) in vms.iter().enumerate() {
        let is_function = |service: &&Service| service.vm == Some(index) && service.device.is_function();
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
                let (mac, queues) = (port.address(member), port.queues(member));
                PortSpec { service, vm, mac, guard, isolated, rate, queues }
            }));
        }
    }
    ports
}
