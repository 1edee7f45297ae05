//! Objects of Kubernetes as core/kube has them.

use k8s_openapi::{
    api::{
        core::v1::Service,
        discovery::v1::EndpointSlice as KubeSlice,
        networking::v1::{Ingress, IngressBackend as KubeBackend, IngressClass},
    },
    apimachinery::pkg::{apis::meta::v1::ObjectMeta as KubeMeta, util::intstr::IntOrString},
};
use sallyport_kube_model::{
    AddressType, CLASS, Endpoint, EndpointPort, EndpointSlice, INGRESS_CONTROLLER, IngressBackend, IngressPath,
    IngressPort, IngressRule, IngressSource, IngressTls, IpFamily, ObjectMeta, PathType, Protocol, ServicePort,
    ServiceSource, ServiceType, TargetPort,
    report::{Condition, ConditionStatus, LoadBalancerIngress, PortStatus},
};

/// The label of a slice with its Service.
const SERVICE_NAME: &str = "kubernetes.io/service-name";
/// The annotation of an Ingress with its class, from before there was a field.
const INGRESS_CLASS: &str = "kubernetes.io/ingress.class";
/// The annotation of the default class of Ingresses.
const DEFAULT_CLASS: &str = "ingressclass.kubernetes.io/is-default-class";

fn meta(meta: &KubeMeta) -> ObjectMeta {
    ObjectMeta {
        namespace: meta.namespace.clone().unwrap_or_default(),
        name: meta.name.clone().unwrap_or_default(),
        uid: meta.uid.clone().unwrap_or_default(),
        resource_version: meta.resource_version.clone().unwrap_or_default(),
        generation: meta.generation,
        created: meta.creation_timestamp.as_ref().map_or(0, |time| time.0.as_second()),
        annotations: meta.annotations.clone().unwrap_or_default(),
        labels: meta.labels.clone().unwrap_or_default(),
        is_deleting: meta.deletion_timestamp.is_some(),
        finalizers: meta.finalizers.clone().unwrap_or_default(),
    }
}

fn port(number: i32) -> u16 {
    u16::try_from(number).unwrap_or(0)
}

fn protocol(text: Option<&str>) -> Protocol {
    match text {
        Some("UDP") => Protocol::Udp,
        Some("SCTP") => Protocol::Sctp,
        _ => Protocol::Tcp,
    }
}

/// A Service. Services of the class that this installation has get [`CLASS`], and those of others get their own.
pub(crate) fn service(service: &Service, class: &str) -> ServiceSource {
    let spec = service.spec.clone().unwrap_or_default();
    let status = service.status.clone().unwrap_or_default();
    let ports = spec.ports.unwrap_or_default().into_iter().map(|one| ServicePort {
        target_port: match one.target_port {
            Some(IntOrString::String(name)) => TargetPort::Named(name),
            Some(IntOrString::Int(number)) => TargetPort::Number(port(number)),
            None => TargetPort::Number(port(one.port)),
        },
        name: one.name.filter(|name| !name.is_empty()),
        port: port(one.port),
        protocol: protocol(one.protocol.as_deref()),
        app_protocol: one.app_protocol,
    });
    ServiceSource {
        meta: meta(&service.metadata),
        service_type: match spec.type_.as_deref() {
            Some("NodePort") => ServiceType::NodePort,
            Some("LoadBalancer") => ServiceType::LoadBalancer,
            Some("ExternalName") => ServiceType::ExternalName,
            _ => ServiceType::ClusterIp,
        },
        cluster_ips: spec.cluster_ips.unwrap_or_else(|| spec.cluster_ip.into_iter().collect()),
        external_name: spec.external_name,
        ports: ports.collect(),
        load_balancer_class: spec.load_balancer_class.map(|own| match own == class {
            true => CLASS.to_owned(),
            false if own == CLASS => format!("{own} (another installation's)"),
            false => own,
        }),
        is_client_ip_affine: spec.session_affinity.as_deref() == Some("ClientIP"),
        ip_families: spec.ip_families.unwrap_or_default().iter().filter_map(|family| ip_family(family)).collect(),
        publishes_not_ready: spec.publish_not_ready_addresses.unwrap_or(false),
        source_ranges: spec.load_balancer_source_ranges.unwrap_or_default(),
        has_selector: spec.selector.is_some_and(|selector| !selector.is_empty()),
        status: status
            .load_balancer
            .and_then(|balancer| balancer.ingress)
            .unwrap_or_default()
            .into_iter()
            .map(|one| LoadBalancerIngress {
                hostname: one.hostname.or(one.ip).unwrap_or_default(),
                ports: one.ports.unwrap_or_default().into_iter().map(port_status).collect(),
            })
            .collect(),
        conditions: status.conditions.unwrap_or_default().into_iter().map(condition).collect(),
    }
}

fn ip_family(text: &str) -> Option<IpFamily> {
    match text {
        "IPv4" => Some(IpFamily::Ipv4),
        "IPv6" => Some(IpFamily::Ipv6),
        _ => None,
    }
}

fn port_status(status: k8s_openapi::api::core::v1::PortStatus) -> PortStatus {
    PortStatus { port: port(status.port), protocol: protocol(Some(&status.protocol)), error: status.error }
}

fn condition(condition: k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition) -> Condition {
    Condition {
        condition_type: condition.type_,
        status: match condition.status.as_str() {
            "True" => ConditionStatus::True,
            "False" => ConditionStatus::False,
            _ => ConditionStatus::Unknown,
        },
        reason: condition.reason,
        message: condition.message,
        observed_generation: condition.observed_generation,
        last_transition: condition.last_transition_time.0.as_second(),
    }
}

/// An Ingress.
pub(crate) fn ingress(ingress: &Ingress) -> IngressSource {
    let meta = meta(&ingress.metadata);
    let spec = ingress.spec.clone().unwrap_or_default();
    let status = ingress.status.clone().unwrap_or_default();
    let rules = spec.rules.unwrap_or_default().into_iter().map(|rule| IngressRule {
        host: rule.host.filter(|host| !host.is_empty()),
        paths: rule
            .http
            .map(|http| http.paths)
            .unwrap_or_default()
            .into_iter()
            .filter_map(|path| {
                Some(IngressPath {
                    path: path.path.filter(|path| !path.is_empty()).unwrap_or_else(|| "/".to_owned()),
                    path_type: match path.path_type.as_str() {
                        "Prefix" => PathType::Prefix,
                        "Exact" => PathType::Exact,
                        _ => PathType::ImplementationSpecific,
                    },
                    backend: backend(path.backend)?,
                })
            })
            .collect(),
    });
    let tls = spec.tls.unwrap_or_default().into_iter();
    IngressSource {
        class: spec.ingress_class_name.or_else(|| meta.annotations.get(INGRESS_CLASS).cloned()),
        default_backend: spec.default_backend.and_then(backend),
        rules: rules.collect(),
        tls: tls.map(|one| IngressTls { hosts: one.hosts.unwrap_or_default(), secret_name: one.secret_name }).collect(),
        status: status
            .load_balancer
            .and_then(|balancer| balancer.ingress)
            .unwrap_or_default()
            .into_iter()
            .map(|one| LoadBalancerIngress {
                hostname: one.hostname.or(one.ip).unwrap_or_default(),
                ports: one
                    .ports
                    .unwrap_or_default()
                    .into_iter()
                    .map(|status| PortStatus {
                        port: port(status.port),
                        protocol: protocol(Some(&status.protocol)),
                        error: status.error,
                    })
                    .collect(),
            })
            .collect(),
        meta,
    }
}

/// A backend; `None` if it has neither a Service nor another object, which the API server refuses.
fn backend(backend: KubeBackend) -> Option<IngressBackend> {
    match (backend.service, backend.resource) {
        (Some(service), _) => {
            let given = service.port.unwrap_or_default();
            let port = match given.name.filter(|name| !name.is_empty()) {
                Some(name) => IngressPort::Named(name),
                None => IngressPort::Number(port(given.number.unwrap_or(0))),
            };
            Some(IngressBackend::Service { name: service.name, port })
        }
        (None, Some(resource)) => Some(IngressBackend::Resource { kind: resource.kind, name: resource.name }),
        (None, None) => None,
    }
}

/// The name of a class of Ingresses that is ours, and whether it is the default one.
pub(crate) fn ingress_class(class: &IngressClass) -> Option<(String, bool)> {
    let controller = class.spec.as_ref()?.controller.as_deref()?;
    let name = class.metadata.name.clone()?;
    let annotations = class.metadata.annotations.as_ref();
    let is_default = annotations.and_then(|all| all.get(DEFAULT_CLASS)).is_some_and(|value| value == "true");
    (controller == INGRESS_CONTROLLER).then_some((name, is_default))
}

/// A slice; `None` if it belongs to no Service.
pub(crate) fn slice(slice: &KubeSlice) -> Option<EndpointSlice> {
    let service = slice.metadata.labels.as_ref()?.get(SERVICE_NAME)?.clone();
    let ports = slice.ports.as_deref().unwrap_or_default().iter().map(|one| EndpointPort {
        name: one.name.clone().unwrap_or_default(),
        port: one.port.map(port),
        protocol: protocol(one.protocol.as_deref()),
    });
    let endpoints = slice.endpoints.as_deref().unwrap_or_default().iter().map(|one| {
        let conditions = one.conditions.clone().unwrap_or_default();
        Endpoint {
            addresses: one.addresses.clone(),
            ready: conditions.ready,
            serving: conditions.serving,
            terminating: conditions.terminating,
            node_name: one.node_name.clone(),
            zone: one.zone.clone(),
        }
    });
    Some(EndpointSlice {
        namespace: slice.metadata.namespace.clone().unwrap_or_default(),
        name: slice.metadata.name.clone().unwrap_or_default(),
        service,
        address_type: match slice.address_type.as_str() {
            "IPv4" => AddressType::Ipv4,
            "IPv6" => AddressType::Ipv6,
            _ => AddressType::Fqdn,
        },
        ports: ports.collect(),
        endpoints: endpoints.collect(),
    })
}
