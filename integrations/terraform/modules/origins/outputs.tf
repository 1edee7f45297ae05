locals {
  # Several parts make one text for cloud-init, the service first, so that it runs before its tunnel.
  # Lists such as write_files and runcmd of all parts are kept.
  boundary = "==sallyport=="
  part = join("\n", [
    "--${local.boundary}",
    "Content-Type: %s; charset=\"utf-8\"",
    "Merge-Type: list(append)+dict(no_replace,recurse_list)+str()",
    "", "%s", "",
  ])
  user_data = {
    for name, own in local.own : name => own == null || length(var.more) == 0 ? own : join("", concat(
      ["Content-Type: multipart/mixed; boundary=\"${local.boundary}\"\nMIME-Version: 1.0\n\n"],
      [for text in concat(var.more, [own]) :
        format(local.part, startswith(text, "#!") ? "text/x-shellscript" : "text/cloud-config", text)
      ],
      ["--${local.boundary}--\n"],
    ))
  }
}

output "names" {
  description = "The names of the machines, in order."
  value       = local.names
}

output "tunnels" {
  description = "The ids of the tunnels, by the names of their machines."
  value       = { for name, tunnel in sallyport_tunnel.this : name => tunnel.id }
}

output "made" {
  description = "What differs when a tunnel was made anew or got another credential, by the names of machines. A machine follows by it, since a credential is shown once: `triggers_replace`, `replace_triggered_by` or a tag."
  value       = { for name, tunnel in sallyport_tunnel.this : name => "${tunnel.id}/${tunnel.credential_version}" }
}

output "user_data" {
  description = "The user data by the names of machines. It is ephemeral, since it has a secret: neither plan nor state has it. It is null in runs that did not make the object."
  ephemeral   = true
  value       = var.ephemeral_outputs ? local.user_data : {}
}

output "credentials" {
  description = "The credentials that this run made, for a secret store of the cloud; null for others."
  ephemeral   = true
  value       = var.ephemeral_outputs ? local.secrets : {}
}
