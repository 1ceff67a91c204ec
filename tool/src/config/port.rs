// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Reads a VM's `networks`: its ports.

use sha2::{Digest, Sha256};
use toml::Spanned;
use toml::de::DeValue;
use turnstile_bundle::PortSpec;

use super::Vm;
use super::rate::parse_rate;
use super::read::{At, Reader};

const KEYS: [&str; 6] = ["network", "mac", "guard", "isolated", "rate", "queues"];
const WANTED: &str = "a list of networks such as [\"lan\"]";
const MAC_ADVICE: &str = "write six bytes such as \"52:54:00:12:34:56\", or leave `mac` out";

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
    /// How many pairs of queues its device has, if it is said.
    pub queues: Option<u16>,
}

impl Port {
    /// A port of which nothing is said.
    fn of(network: At<String>) -> Self {
        Port { network, mac: None, guard: true, isolated: false, rate: None, queues: None }
    }

    /// How many pairs of queues its device has: one for each vCPU, as far as there are so many.
    pub fn queues(&self, vm: &Vm) -> u16 {
        let most = *PortSpec::QUEUES.end();
        self.queues.unwrap_or_else(|| vm.vcpus.min(most.into()) as u16)
    }

    /// Its address: its own, or one that is always the same for these names.
    pub fn address(&self, vm: &Vm) -> [u8; 6] {
        self.mac.as_ref().map_or_else(|| computed(&self.network.value, &vm.name.value), |mac| mac.value)
    }
}

/// Computes an address that is locally administered.
fn computed(network: &str, vm: &str) -> [u8; 6] {
    let hash = Sha256::digest(format!("{network}/{vm}"));
    [0x02, hash[0], hash[1], hash[2], hash[3], hash[4]]
}

/// Reads the `networks` of a VM.
pub fn read_all(reader: &mut Reader<'_, '_>) -> Vec<Port> {
    let items = reader.list("networks", WANTED);
    items.into_iter().filter_map(|item| read(reader, item)).collect()
}

/// Reads a port: the name of a network, or a table.
fn read<'a>(reader: &mut Reader<'a, '_>, item: &'a Spanned<DeValue<'a>>) -> Option<Port> {
    let table = match item.get_ref() {
        DeValue::String(name) => return Some(Port::of(At::new(name.to_string(), item.span()))),
        DeValue::Table(table) => table,
        _ => {
            reader.wrong_type("networks", item, WANTED);
            return None;
        }
    };
    let mut reader = reader.inner(table, item.span(), &KEYS);
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
    let queues = reader.number("queues").and_then(|queues| read_queues(&mut reader, &queues));
    Some(Port { network: network?, mac, guard, isolated, rate, queues })
}

/// Reads how many pairs of queues a device can have.
fn read_queues(reader: &mut Reader<'_, '_>, queues: &At<u64>) -> Option<u16> {
    let known = u16::try_from(queues.value).ok().filter(|queues| PortSpec::QUEUES.contains(queues));
    if known.is_none() {
        let what = format!("a port cannot have {} pairs of queues", queues.value);
        let help = format!("give {} to {}", PortSpec::QUEUES.start(), PortSpec::QUEUES.end());
        reader.problem(queues.span.clone(), what, help);
    }
    known
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
pub fn show_mac(mac: [u8; 6]) -> String {
    mac.map(|byte| format!("{byte:02x}")).join(":")
}
