# Machines that register themselves: each has a tunnel of its own, and its user data has the credential of this tunnel.

locals {
  names = [for number in range(var.instances) : format("%s-%d", var.name, number + 1)]

  # The user data for one machine, which the module completes.
  base = yamldecode(file("${path.module}/../../../cloud-init/origin.yaml"))

  environment = join("\n", concat(
    ["SALLYPORT_API=${var.api}"],
    var.ca == null ? [] : ["SALLYPORT_CA=/etc/sallyport/ca.pem"],
    [""]
  ))
  install = "SALLYPORT_URL=${var.program.url}\nSALLYPORT_SHA256=${var.program.sha256}\n"
  trusted = var.ca == null ? [] : [{ path = "/etc/sallyport/ca.pem", permissions = "0644", content = var.ca }]
}

resource "sallyport_tunnel" "this" {
  for_each  = toset(local.names)
  socket_id = var.socket_id
  name      = each.key
  labels    = var.labels
}

# The credential in the run that makes the tunnel. Later runs neither get it nor make another one.
ephemeral "sallyport_initial_secret" "this" {
  for_each = sallyport_tunnel.this
  id       = each.value.id
}

locals {
  # Machines whose tunnel this run made. No other machine needs user data.
  contents = {
    for name, tunnel in sallyport_tunnel.this : name => {
      "/etc/sallyport/run.env"     = local.environment
      "/etc/sallyport/install.env" = local.install
      "/etc/sallyport/services.toml" = join("\n", [
        "[[service]]",
        "name = ${jsonencode(name)}",
        "socket-id = ${jsonencode(var.socket_id)}",
        "tunnel-id = ${jsonencode(tunnel.id)}",
        "tunnel-credential = ${jsonencode(coalesce(ephemeral.sallyport_initial_secret.this[name].secret, "given in another run"))}",
        "port = ${var.port}",
        "",
      ])
    }
  }

  own = {
    for name, contents in local.contents : name => join("", ["#cloud-config\n", yamlencode(merge(local.base, {
      write_files = concat(
        [for file in local.base.write_files : merge(file, { content = lookup(contents, file.path, file.content) })],
        local.trusted,
      )
    }))])
  }
}
