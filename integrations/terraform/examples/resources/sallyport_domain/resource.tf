resource "sallyport_domain" "app" {
  name = "app.example.com"
}

# What to set at the name service of the domain.
output "records" {
  value = sallyport_domain.app.records
}
