resource "local_file" "services" {
  filename = "services.toml"
  content = provider::sallyport::services_toml({
    service = [
      { name = "shop", port = 8000, allow = ["192.0.2.0/24"] },
      { name = "database", socket_id = "wandering-shape-7752", port = 5432 },
    ]
  })
}
