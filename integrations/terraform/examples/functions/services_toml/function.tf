# The file of `sallyport run` with two services.
output "services" {
  value = provider::sallyport::services_toml({
    redundancy = 2
    services = [
      { name = "shop", port = 8000, allow = ["192.0.2.0/24"] },
      { name = "database", socket_id = "wandering-shape-7752", host = "db.internal", port = 5432 },
    ]
  })
}
