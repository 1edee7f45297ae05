module github.com/sallyport/sallyport/integrations/cloud-init

go 1.26.8
