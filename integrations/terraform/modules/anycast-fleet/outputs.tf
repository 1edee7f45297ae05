output "sites" {
  description = "The edges of each site: { eu = { names = [\"eu-1\", \"eu-2\"] } }."
  value       = { for site, edges in module.edges : site => { names = edges.names } }
}

output "made" {
  description = "What differs when an edge was made anew, by name. Its machine follows by it: `triggers_replace`, `replace_triggered_by` or a tag."
  value       = merge(values(module.edges)[*].made...)
}

output "user_data" {
  description = "The user data by the names of edges. It is ephemeral, since it has a secret: neither plan nor state has it. It is null in runs that did not make the edge."
  ephemeral   = true
  value       = var.ephemeral_outputs ? merge(values(module.edges)[*].user_data...) : {}
}

output "tokens" {
  description = "The join tokens of edges that this run made, for a secret store of the cloud; null for others."
  ephemeral   = true
  value       = var.ephemeral_outputs ? merge(values(module.edges)[*].tokens...) : {}
}
