// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `[[network]]` and `networks`: what they say, and every mistake in them.

use super::*;

use turnstile_bundle::{ServiceDevice, Uplink};

const LAN: &str = "[[network]]\nname = \"lan\"\n";

/// The minimal VM with these networks, and these tables.
fn with(networks: &str, tables: &str) -> String {
    format!("{MINIMAL}networks = [{networks}]\n{tables}")
}

/// So many VMs with these lines.
fn many(count: usize, lines: &str) -> String {
    vms(&vec![lines; count])
}

#[test]
fn each_network_is_a_service_with_ports() {
    let text = format!(
        "{}{LAN}[[network]]\nname = \"other\"\ntime-limit = \"5ms\"\n[[disk]]\nname = \"d\"\nsize = \"1MiB\"\n",
        vms(&[
            "networks = [\"other\", \"lan\"]\ndisks = [\"d\"]",
            "networks = [{ network = \"lan\", mac = \"52:54:00:AB:34:56\", guard = false, isolated = true, \
             rate = \"100Mbit/s\" }]",
            "networks = [{ network = \"lan\" }]",
        ])
    );
    let config = parse_text(&text).unwrap();
    let [disk, lan, other] = config.services.as_slice() else { panic!("{:?}", config.services) };
    assert_eq!((disk.name.value.as_str(), disk.vm), ("d", Some(0)));
    for (service, name, limit) in [(lan, "lan", 100_000_000), (other, "other", 5_000_000)] {
        assert_eq!((service.name.value.as_str(), service.limit), (name, limit));
        assert_eq!((service.device, service.vm), (ServiceDevice::Network, None));
        assert!(service.memory && service.disk.is_none());
        assert_eq!(service.program.value, Program::Ours("switch".into()));
    }
    let [first, second, third, last] = config.ports.as_slice() else { panic!("{:?}", config.ports) };
    let mac = [0x52, 0x54, 0, 0xab, 0x34, 0x56];
    let said =
        PortSpec { service: 1, vm: 1, mac, guard: false, isolated: true, rate: Some(100_000_000), queues: 1 };
    assert_eq!(*second, said);
    let usual = |port: &PortSpec| port.guard && !port.isolated && port.rate.is_none() && port.mac[0] == 2;
    assert!([first, third, last].into_iter().all(usual), "{:?}", config.ports);
    let place = |port: &PortSpec| (port.service, port.vm);
    assert_eq!([first, third, last].map(place), [(1, 0), (1, 2), (2, 0)]);
    assert_eq!(first.mac, [0x02, 0x4e, 0xc6, 0xb3, 0xe4, 0xa1], "it stays the same");
    assert!(first.mac != third.mac && first.mac != last.mac);
    assert!(parse_text(MINIMAL).unwrap().ports.is_empty());
}

#[test]
fn a_port_has_a_pair_of_queues_for_each_vcpu_or_as_many_as_it_says() {
    let queues = |vcpus: u32, port: &str| {
        let text = format!("{MINIMAL}vcpus = {vcpus}\nnetworks = [{{ network = \"lan\"{port} }}]\n{LAN}");
        let text = text + "[machine]\ncpus = 8\n";
        parse_text(&text).unwrap().ports[0].queues
    };
    assert_eq!([1, 2, 4, 5, 8].map(|vcpus| queues(vcpus, "")), [1, 2, 4, 4, 4]);
    assert_eq!([1, 2, 8].map(|vcpus| queues(vcpus, ", queues = 3")), [3; 3]);
    for wrong in ["0", "5", "65537"] {
        let text = with(&format!("{{ network = \"lan\", queues = {wrong} }}"), LAN);
        let what = format!("a port cannot have {wrong} pairs of queues");
        expect(&text, &[(wrong, &what, "give 1 to 4")]);
    }
}

#[test]
fn an_uplink_is_a_card_of_the_machine() {
    let uplink = |card: &str| format!("uplink = \"{card}\"\ntrusted = true\n");
    let other = format!("[[network]]\nname = \"other\"\n{}", uplink("net2"));
    let text = with("\"lan\", \"other\"", &format!("{LAN}{}{other}", uplink("net0")));
    let config = parse_text(&text).unwrap();
    let cards: Vec<_> = config.services.iter().map(|service| service.uplink).collect();
    let card = |card| Some(Uplink { card, trusted: true });
    assert_eq!((cards, config.cards()), (vec![card(0), card(2)], vec![NetworkCard::Virtio; 3]));
    assert_eq!(parse_text(&with("\"lan\"", LAN)).unwrap().cards(), []);

    let lan = |lines: &str| with("\"lan\"", &format!("{LAN}{lines}"));
    for name in ["eth0", "net", "net16", "net-1", "0"] {
        let what = format!("`{name}` is no network card of a machine");
        expect(&lan(&uplink(name)), &[(&format!("\"{name}\""), &what, "write \"net0\" for the first one")]);
    }
    let reach = "a network card reaches all memory of the machine";
    for lines in ["uplink = \"net0\"\n", "uplink = \"net0\"\ntrusted = false\n"] {
        assert!(parse_text(&lan(lines)).unwrap().iommu(), "it is behind an IOMMU");
        let pc = format!("[machine]\nboard = \"pc\"\n{}", lan(lines));
        expect(&pc, &[("\"net0\"", reach, "write trusted = true if you accept that")]);
    }
    let what = "a network without an uplink is trusted with nothing";
    expect(&lan("trusted = true\n"), &[("true", what, "take `trusted` out")]);
    let same = other.replace("net2", "net0");
    let text = with("\"lan\", \"other\"", &format!("{LAN}{}{same}", uplink("net0")));
    expect(&text, &[("\"net0\"", "the network `lan` has this card", "give each network its own")]);
    let trusted = text.replacen("trusted = true\n", "", 1);
    expect(&trusted, &[("\"net0\"", "the network `lan` has this card", "give each network its own")]);
    let what = "no network card of the board `rpi4` can be used";
    let text = format!("[machine]\nboard = \"rpi4\"\n{}", lan(&uplink("net0")));
    expect(&text, &[("\"net0\"", what, "choose another board")]);
    let text = format!("[machine]\nboard = \"powernv9\"\n{}", lan(&uplink("net6")));
    expect(&text, &[("\"net6\"", "the board `powernv9` has 6 network cards", "up to \"net5\"")]);
}

#[test]
fn the_card_of_an_uplink_can_be_chosen() {
    let uplink = |number, card: &str| format!("uplink = \"net{number}\"\ntrusted = true\n{card}\n");
    let lan = |lines: &str| with("\"lan\"", &format!("{LAN}{lines}"));
    let cards = |text: &str| parse_text(text).unwrap().cards();
    let [virtio, e1000e] = [NetworkCard::Virtio, NetworkCard::E1000e];
    assert_eq!(cards(&lan(&uplink(0, "card = \"virtio\""))), [virtio]);
    assert_eq!(cards(&lan(&uplink(1, "card = \"e1000e\""))), [virtio, e1000e], "each has its number");
    let other = format!("[[network]]\nname = \"other\"\n{}", uplink(0, "card = \"e1000e\""));
    let both = with("\"lan\", \"other\"", &format!("{LAN}{}{other}", uplink(2, "")));
    assert_eq!(cards(&both), [e1000e, virtio, virtio]);
    let help = "did you mean `e1000e`?";
    expect(&lan(&uplink(0, "card = \"e1000\"")), &[("\"e1000\"", "`card` cannot be `e1000`", help)]);
    let what = "a network without an uplink has no card";
    expect(&lan("card = \"e1000e\"\n"), &[("\"e1000e\"", what, "take `card` out")]);
}

#[test]
fn networks_do_not_keep_realtime_vms_waiting() {
    let member = format!("{SHARED}cpus = [0]\nnetworks = [\"lan\"]");
    let realtime = format!("{SHARED}cpus = [1]\nrealtime = 5");
    let third = format!("{SHARED}cpus = [1]\nnetworks = [\"lan\"]");
    let text = format!("{}{LAN}", vms(&[&member, &realtime, &third]));
    let what = "the network `lan` may keep the real-time VM `b` waiting: `c` shares a CPU with it";
    expect(&text, &[("\"lan\"", what, "beside-realtime = true")]);
    assert!(parse_text(&format!("{text}beside-realtime = true\n")).is_ok());
    assert!(parse_text(&format!("{}{LAN}", vms(&[&member, &realtime]))).is_ok());
}

#[test]
fn mistakes_in_networks_are_shown() {
    let lan = "\"lan\"";
    expect(&with("", "[[network]]\n"), &[("[[network]]", "`name` is missing", "\"lan\"")]);
    expect(&with(lan, &LAN.replace("lan", "LAN")), &[("\"LAN\"", "cannot be a network's name", "a-z")]);
    expect(&with(lan, &format!("{LAN}vm = \"a\"\n")), &[("vm", "unknown key `vm`", "`name`")]);
    expect(&with(lan, &format!("{LAN}time-limit = \"2s\"\n")), &[("\"2s\"", "cannot have", "100us to 1s")]);
    expect(&with(lan, "[network]\nname = \"lan\"\n"), &[("network", "is a list of tables", "[[network]]")]);
    expect(&with("\"lam\"", ""), &[("\"lam\"", "there is no network `lam`", "describe it: [[network]]")]);
    expect(
        &with("\"lan\", \"lam\"", LAN),
        &[("\"lam\"", "there is no network `lam`", "did you mean `lan`?")],
    );
    expect(&with("\"lan\", { network = \"lan\" }", LAN), &[(lan, "named twice", "once")]);
    expect(&with("", LAN), &[(lan, "no VM has the network `lan`", "take it out")]);
    expect(&with(lan, &format!("{LAN}{LAN}")), &[(lan, "two networks with the name `lan`", "its own")]);
    let on_demand = format!("{MINIMAL}mapping = \"on-demand\"\nnetworks = [\"lan\"]\n{LAN}");
    assert!(parse_text(&on_demand).is_ok());
    let disk = "[[disk]]\nname = \"lan\"\nsize = \"1MiB\"\n";
    let both = format!("{MINIMAL}disks = [\"lan\"]\nnetworks = [\"lan\"]\n{disk}{LAN}");
    expect(&both, &[(lan, "two services with the name `lan`", "its own")]);
    let service = "[[service]]\nname = \"s\"\nprogram = \"uart\"\nvm = \"a\"\ndevice = \"network\"\n";
    expect(&with("", service), &[("\"network\"", "`device` cannot be `network`", "`pci`")]);
}

#[test]
fn mistakes_in_ports_are_shown() {
    let port = |more: &str| with(&format!("{{ network = \"lan\"{more} }}"), LAN);
    expect(&with("1", ""), &[("1", "must be a list of networks", "")]);
    expect(&format!("{MINIMAL}networks = \"lan\"\n"), &[("\"lan\"", "must be a list of networks", "")]);
    let missing = &[("{ guard = true }", "`network` is missing", "name of the network")];
    expect(&with("{ guard = true }", ""), missing);
    expect(&port(", gard = true"), &[("gard", "unknown key `gard`", "`guard`")]);
    expect(&port(", guard = \"no\""), &[("\"no\"", "must be true or false", "")]);
    for text in ["52:54:00:12:34", "52:54:00:12:34:5", "52:54:00:12:34:+6", "52-54-00-12-34-56", ""] {
        let place = format!("\"{text}\"");
        let said = &[(place.as_str(), "is not an Ethernet address", "\"52:54:00:12:34:56\"")];
        expect(&port(&format!(", mac = {place}")), said);
    }
    let group = "\"ff:54:00:12:34:56\"";
    let said = &[(group, "is the address of a group", "\"fe:54:00:12:34:56\"")];
    expect(&port(&format!(", mac = {group}")), said);
    let zeros = "\"00:00:00:00:00:00\"";
    expect(&port(&format!(", mac = {zeros}")), &[(zeros, "address of zeros", "leave `mac` out")]);
    expect(&port(", rate = \"1GB\""), &[("\"1GB\"", "`1GB` is not a rate", "\"1Gbit/s\"")]);
    expect(&port(", rate = \"1kbit/s\""), &[("\"1kbit/s\"", "cannot send `1kbit/s`", "64kbit/s to")]);
    expect(&port(", rate = 5"), &[("5", "`rate` must be a string", "")]);
}

#[test]
fn addresses_are_unique_in_a_network() {
    let mac = "networks = [{ network = \"lan\", mac = \"02:00:00:00:00:01\" }]";
    let what = "the VM `a` has the address 02:00:00:00:00:01 on this network";
    expect(&format!("{}{LAN}", vms(&[mac, mac])), &[("\"lan\"", what, "another `mac`, or leave it out")]);
    let other = mac.replace("lan", "wan");
    let apart = format!("{}{LAN}{}", vms(&[mac, &other]), LAN.replace("lan", "wan"));
    assert!(parse_text(&apart).is_ok());
    // One that is computed, and the same one given to another.
    let text = format!("{}{LAN}", vms(&["networks = [\"lan\"]", ""]));
    let bytes = parse_text(&text).unwrap().ports[0].mac.map(|byte| format!("{byte:02x}")).join(":");
    let given = format!("networks = [{{ network = \"lan\", mac = \"{bytes}\" }}]");
    let text = format!("{}{LAN}", vms(&[&given, "", "networks = [\"lan\"]"]));
    assert!(parse_text(&text).is_ok());
    let text = format!("{}{LAN}", vms(&["networks = [\"lan\"]", &given]));
    expect(&text, &[("\"lan\"", "the VM `a` has the address 02:", "another `mac`")]);
}

#[test]
fn there_are_so_many_ports() {
    let lan = "networks = [\"lan\"]";
    assert_eq!(parse_text(&format!("{}{LAN}", many(8, lan))).unwrap().ports.len(), 8);
    let nine = format!("{}{LAN}", many(9, lan));
    expect(&nine, &[("\"lan\"", "the network `lan` has more than 8 VMs", "describe another")]);
    let names: Vec<String> = (0..13).map(|index| format!("n{index}")).collect();
    let list = |names: &[String]| format!("networks = {names:?}");
    let tables: String = names.iter().map(|name| LAN.replace("lan", name)).collect();
    let (most, all) = (list(&names), list(&names[..12]));
    let text = |lists: &[&str]| format!("{}{tables}", vms(lists));
    assert_eq!(parse_text(&text(&[&most, &all, &all, &all, &all])).unwrap().ports.len(), 61);
    let beyond = text(&[&most, &all, &all, &all, &all, &list(&names[..4])]);
    expect(&beyond, &[("\"n3\"", "more than 64 ports of networks", "take the others out")]);
    let services: String = (0..29)
        .map(|index| {
            format!("[[service]]\nname = \"s{index}\"\nprogram = \"uart\"\nvm = \"a\"\ndevice = \"pci\"\n")
        })
        .collect();
    let two = format!("{services}{LAN}{}", LAN.replace("lan", "wan"));
    expect(
        &with("\"lan\", \"wan\"", &two),
        &[("\"wan\"", "more than 30 disks, networks and other PCI functions", "take the others out")],
    );
}
