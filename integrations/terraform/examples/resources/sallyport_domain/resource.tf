resource "sallyport_domain" "app" {
  name = "app.example.com"
}

# What the name service of the domain must have.
output "records" {
  value = sallyport_domain.app.records
}
